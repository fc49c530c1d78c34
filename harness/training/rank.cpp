#include "harness/training/rank.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <list>
#include <new>
#include <utility>

#include "harness/communicator/world.hpp"
#include "harness/experiment/timing.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/resident_memory.hpp"
#include "harness/support/tf32.hpp"
#include "harness/training/checkpoint.hpp"
#include "harness/training/history.hpp"
#include "harness/training/libraries.hpp"
#include "harness/training/peak_memory.hpp"
#include "harness/training/timing/turns.hpp"
#include "harness/training/trainer.hpp"

namespace bnlab {
namespace {

// What holds for the whole process, whatever runs it makes.
void configure_process() {
  static const bool configured = [] {
    account_cpu_memory();
    return true;
  }();
  (void)configured;
}

void repeat_to_the_bit(bool wanted) {
  at::Context& context = at::globalContext();
  context.setBenchmarkCuDNN(kCudnnBenchmark && !wanted);
  context.setDeterministicCuDNN(wanted);
  context.setDeterministicAlgorithms(wanted, /*warn_only=*/true);
  context.setDeterministicFillUninitializedMemory(false);
}

// Whether a world that was joined at `a` is what `b` asks for.
bool differ_in_prefix_only(const Rendezvous& a, const Rendezvous& b) {
  return a.rank == b.rank && a.size == b.size && a.local_rank == b.local_rank && a.address == b.address &&
         a.port == b.port && a.exchange == b.exchange && a.timeout == b.timeout;
}

// The one that was kept, or a new one. Nothing is kept from here on.
std::shared_ptr<World> world_for(const RankJob& job, KeptWorld* kept) {
  if (kept != nullptr) kept->is_kept = false;
  if (kept != nullptr && kept->world != nullptr) {
    if (job.device == kept->device && differ_in_prefix_only(job.rendezvous, kept->rendezvous)) {
      kept->world->ledger().clear();
      return std::exchange(kept->world, nullptr);
    }
    shutdown(*kept);
  }
  return join_world(job.rendezvous, job.device == Device::cuda ? at::kCUDA : at::kCPU);
}

void put_times(const TurnTimes& times, Json& result) {
  result["timing"] = times.timing;
  if (!result["throughput"].is_null()) result["throughput"].update(times.throughput, /*merge_objects=*/true);
}

// Times the trained run in turns with those that its spec names, the one of timing.against made twice, and
// puts into the result what came of it.
void add_timing(const RankJob& job, World& world, Trainer& trainer, Json& result) {
  const std::vector<RunSpec> others = timed_with(job.spec);
  const RunSpec against = timed_beside(job.spec);
  std::list<Checkpoints> checkpoints;
  std::list<Trainer> trainers;
  std::vector<Trainer*> runs{&trainer};
  const auto add = [&](const RunSpec& run) {
    const std::string folder = job.run_dir + "/beside";  // where no checkpoint is
    checkpoints.emplace_back(run, job.inputs, folder, world);
    runs.push_back(&trainers.emplace_back(run, job.data_dir, world, checkpoints.back(), RunLog()));
  };
  std::vector<std::string> ids;
  for (const RunSpec& other : others) {
    try {  // what refuses a run refuses it on every rank
      add(other);
      ids.push_back(other.id);
    } catch (const Error& error) {
      if (error.kind() != Error::Kind::refused) throw;  // its own record will say why
    }
  }
  add(against);
  add(against);
  const std::vector<TurnTimes> times = time_in_turns(*job.spec.timing, world, runs);
  if (world.rank() != 0) return;
  put_times(times.front(), result);
  for (size_t i = 0; i < ids.size(); ++i) {
    const TurnTimes& of_other = times[i + 1];
    result["timing"]["with"].push_back(
        {{"run_id", ids[i]}, {"timing", of_other.timing}, {"throughput", of_other.throughput}});
  }
}

std::string cause_of(const std::exception& error) {
  if (const auto* memory = dynamic_cast<const c10::OutOfMemoryError*>(&error))
    return memory->what_without_backtrace();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return "the machine has no memory left for another tensor";
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
}

// Times the run where its spec asks for that. It is trained and saved, so that whatever fails here leaves it
// its result: then the reason, else nothing.
std::string timed(const RankJob& job, World& world, Trainer& trainer, Json& result) {
  if (!job.spec.timing || !job.spec.timing->with || trainer.diverged()) return "";
  try {
    add_timing(job, world, trainer, result);
    return "";
  } catch (const std::exception& error) {
    return cause_of(error);
  }
}

RankReport train(const RankJob& job, bool& world_formed, KeptWorld* kept) {
  configure_process();
  reset_peak_rss();
  at::set_num_threads(
      job.threads);  // OpenMP, MKL, oneDNN and LibTorch's own pool; nothing here uses its other one
  allow_tf32(job.spec.tf32);
  repeat_to_the_bit(job.spec.deterministic);
  const std::shared_ptr<World> world = world_for(job, kept);
  world_formed = true;
  reset_peak_memory(world->device());  // the process may have made other runs
  Checkpoints checkpoints(job.spec, job.inputs, job.run_dir, *world);
  RunLog log = world->rank() == 0 ? RunLog(job.run_dir + "/" + kMetricsFile, job.spec.id, checkpoints.found())
                                  : RunLog();
  Trainer trainer(job.spec, job.data_dir, *world, checkpoints, std::move(log));
  std::vector<std::string> notes = checkpoints.notes();
  for (const std::string& note : trainer.notes()) notes.push_back(note);
  const auto tell = [&](const std::string& note) {
    if (world->rank() == 0) std::cerr << note << std::endl;
  };
  std::ranges::for_each(notes, tell);
  const std::chrono::duration<double> start = std::chrono::steady_clock::now() - job.started;
  trainer.run();
  if (const std::string why = trainer.why_stopped(); !why.empty()) {
    notes.push_back(why);
    tell(why);
  }
  RankReport report;
  Json result = trainer.result();
  result["start_s"] = start.count();
  result["memory"]["weights_bytes"] = trainer.save_weights(job.run_dir);
  const std::string not_timed = timed(job, *world, trainer, result);
  if (!not_timed.empty()) {
    notes.push_back("not timed in turns: " + not_timed);
    tell(notes.back());
  }
  if (world->rank() == 0) {
    report.result = std::move(result);
    report.notes = notes;
    report.lost_work = checkpoints.notes();
  }
  if (trainer.diverged()) {
    report.status = Status::diverged;
    report.message = "the training loss is not finite";
  }
  if (!not_timed.empty() && world->size() > 1) {
    report.lost_contact = !missing_peer().empty();
    return report;  // ranks that wait in an exchange lose contact with this world, and leave it, too
  }
  if (kept != nullptr) {
    world->barrier();
    *kept = {.world = world, .rendezvous = job.rendezvous, .device = job.device, .is_kept = true};
  } else {
    world->shutdown();
  }
  return report;
}

RankReport failed(Status status, const std::string& message, bool lost_contact = false) {
  return {.status = status, .message = message, .lost_contact = lost_contact};
}

RankReport outcome_of(const RankJob& job, bool& world_formed, KeptWorld* kept) {
  try {
    return train(job, world_formed, kept);
  } catch (const Error& e) {
    const bool lost_contact = e.kind() == Error::Kind::communication;
    return failed(lost_contact ? Status::crashed : Status::error, e.what(), lost_contact);
  } catch (const c10::OutOfMemoryError& e) {
    return failed(Status::oom, cause_of(e));
  } catch (const std::bad_alloc& e) {
    return failed(Status::oom, cause_of(e));
  } catch (const std::exception& e) {
    const std::string missing = missing_peer();
    return failed(Status::crashed, missing.empty() ? cause_of(e) : missing, is_lost_contact(e));
  }
}

}  // namespace

RankReport run_rank(const RankJob& job, KeptWorld* kept) {
  bool world_formed = false;
  RankReport report = outcome_of(job, world_formed, kept);
  report.world_formed = world_formed;
  return report;
}

void shutdown(KeptWorld& kept) {
  if (kept.world != nullptr) std::exchange(kept.world, nullptr)->shutdown();
}

}  // namespace bnlab
