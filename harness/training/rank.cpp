#include "harness/training/rank.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/types.h>
#include <torch/version.h>
#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#endif

#include <iostream>
#include <new>
#include <utility>

#include "harness/communicator/world.hpp"
#include "harness/cpu_kernels.hpp"
#include "harness/error.hpp"
#include "harness/records/run_folder.hpp"
#include "harness/tf32.hpp"
#include "harness/training/checkpoint.hpp"
#include "harness/training/costs.hpp"
#include "harness/training/history.hpp"
#include "harness/training/trainer.hpp"

namespace bnlab {
namespace {

// Whether cuDNN times its algorithms on the first batch of each shape and takes the fastest. Runs may then differ in
// their rounding, which the record therefore says.
constexpr bool kCudnnBenchmark = true;

void configure(const RankJob& job) {
  account_cpu_memory();
  at::set_num_threads(job.threads);
  at::globalContext().setBenchmarkCuDNN(kCudnnBenchmark);
}

// Whether a world that met by `a` is what `b` asks for.
bool differ_in_prefix_only(const Rendezvous& a, const Rendezvous& b) {
  return a.rank == b.rank && a.size == b.size && a.local_rank == b.local_rank && a.address == b.address &&
         a.port == b.port && a.exchange == b.exchange && a.timeout == b.timeout;
}

// The one that was kept, or a new one. Nothing is kept from here on.
std::shared_ptr<World> world_for(const RankJob& job, KeptWorld* kept) {
  if (kept != nullptr && kept->world != nullptr) {
    if (job.device == kept->device && differ_in_prefix_only(job.rendezvous, kept->rendezvous)) {
      kept->world->ledger().clear();
      return std::exchange(kept->world, nullptr);
    }
    leave(*kept);
  }
  return join_world(job.rendezvous, job.device == "cuda" ? at::kCUDA : at::kCPU);
}

RankReport train(const RankJob& job, bool& met, KeptWorld* kept) {
  static const bool configured = (configure(job), true);
  (void)configured;
  allow_tf32(job.spec.tf32);
  const std::shared_ptr<World> world = world_for(job, kept);
  met = true;
  Checkpoints checkpoints(job.spec, job.inputs, job.run_dir, *world);
  RunLog log = world->rank() == 0 ? RunLog(job.run_dir + "/" + kMetricsFile, job.spec.id, checkpoints.found())
                                  : RunLog();
  Trainer trainer(job.spec, job.data_dir, *world, checkpoints, std::move(log));
  std::vector<std::string> notes = checkpoints.notes();
  for (const std::string& note : trainer.notes()) {
    notes.push_back(note);
  }
  if (world->rank() == 0) {
    for (const std::string& note : notes) {
      std::cerr << note << std::endl;
    }
  }
  trainer.run();
  RankReport report;
  Json result = trainer.result();
  result["memory"]["weights_bytes"] = trainer.save_weights(job.run_dir);
  if (world->rank() == 0) {
    report.result = std::move(result);
    report.notes = notes;
  }
  if (trainer.diverged()) {
    report.status = "diverged";
    report.message = "the training loss is not finite";
  }
  if (kept != nullptr) {
    world->rest();
    *kept = {world, job.rendezvous, job.device};
  } else {
    world->leave();
  }
  return report;
}

RankReport failed(const std::string& status, const std::string& message, bool lost_contact = false) {
  return {status, message, nullptr, lost_contact, {}};
}

RankReport outcome_of(const RankJob& job, bool& met, KeptWorld* kept) {
  try {
    return train(job, met, kept);
  } catch (const Error& e) {
    const bool lost_contact = e.kind() == Error::Kind::communication;
    return failed(lost_contact ? "crashed" : "error", e.what(), lost_contact);
  } catch (const c10::OutOfMemoryError& e) {
    return failed("oom", e.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    return failed("oom", "the machine has no memory left for another tensor");
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const c10::Error*>(&e);
    return failed("crashed", error != nullptr ? error->what_without_backtrace() : e.what(),
                  is_lost_contact(e));
  }
}

}  // namespace

RankReport run_rank(const RankJob& job, KeptWorld* kept) {
  bool met = false;
  RankReport report = outcome_of(job, met, kept);
  report.met = met;
  return report;
}

void leave(KeptWorld& kept) {
  if (kept.world != nullptr) {
    std::exchange(kept.world, nullptr)->leave();
  }
}

int visible_gpus() {
#ifdef USE_C10D_NCCL
  return static_cast<int>(c10::cuda::device_count());
#else
  return 0;
#endif
}

Json library_versions() {
  Json versions = {{"libtorch", TORCH_VERSION},
                   {"cuda", nullptr},
                   {"nccl", nullptr},
                   {"cudnn_benchmark", nullptr},
                   {"gpus", Json::array()},
                   {"cpu_capability", at::get_cpu_capability()},
                   {"cpu_kernels", CpuKernels::level()}};
#ifdef USE_C10D_NCCL
  versions["cuda"] = std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  versions["nccl"] = nccl_version();
  versions["cudnn_benchmark"] = kCudnnBenchmark;
  for (int i = 0; i < visible_gpus(); ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) == cudaSuccess) {
      versions["gpus"].push_back(properties.name);
    }
  }
#endif
  return versions;
}

}  // namespace bnlab
