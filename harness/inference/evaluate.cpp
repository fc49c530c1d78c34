#include "harness/inference/evaluate.hpp"

#include <ATen/Parallel.h>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/inference/loaded_run.hpp"
#include "harness/tf32.hpp"

namespace bnlab {
namespace {

Json evaluate_on_rank(const EvaluateJob& job, World& world) {
  LoadedRun run(job, world);
  const int64_t steps = run.data().steps();
  const Json computed = run.evaluator().evaluate(steps);
  if (run.model().statistics() == nullptr) {
    return computed;
  }
  Json all = Json::object();
  for (const std::string& population : job.populations) {
    if (computed.contains(population)) {
      all[population] = computed.at(population);
    } else {
      run.load_population(population);
      all[population] = run.evaluator().measure(steps);
    }
  }
  return all;
}

}  // namespace

Json evaluate_weights(const EvaluateJob& job) {
  at::set_num_threads(job.threads);
  allow_tf32(job.spec.tf32);
  if (job.ranks > 1) {
    prepare_thread_ranks();
  }
  Json of_rank0;
  on_thread_ranks(job.ranks, job.device == "cuda" ? at::kCUDA : at::kCPU, [&](World& world) {
    const Json all = evaluate_on_rank(job, world);
    if (world.rank() == 0) {
      of_rank0 = all;
    }
  });
  return of_rank0;
}

}  // namespace bnlab
