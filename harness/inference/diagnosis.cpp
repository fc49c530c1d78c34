#include "harness/inference/diagnosis.hpp"

#include <ATen/Parallel.h>
#include <torch/types.h>

#include <algorithm>
#include <map>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/inference/loaded_run.hpp"
#include "harness/support/text_table.hpp"
#include "harness/support/tf32.hpp"

namespace bnlab {
namespace {

constexpr int kDigits = 3;

std::string decimals_of(double value) {
  return fixed(value, kDigits);
}

// What mending a cause wins back, and how the sentence tells it.
struct Won {
  Cause cause;
  double back = 0;
  std::string text;
};

std::vector<Won> parts_of(const DiagnosisNumbers& n) {
  std::vector<Won> parts;
  const std::string saved = decimals_of(n.saved);
  if (n.precise && n.batch) {
    const double fresh = n.nearest_shard.value_or(*n.precise);
    const std::string over =
        n.nearest_tower ? "the shard of tower " + std::to_string(*n.nearest_tower) : "training batches";
    parts.push_back({Cause::lagging_statistics, fresh - n.saved,
                     "lagging statistics: recomputed over " + over + " they reach " + decimals_of(fresh) +
                         ", as they were saved " + saved});
    if (n.nearest_shard) {
      parts.push_back({Cause::skewed_shards, *n.precise - *n.nearest_shard,
                       "skewed shards: the saved statistics are those of tower " +
                           std::to_string(*n.nearest_tower) + ", whose shard alone gives " +
                           decimals_of(*n.nearest_shard) + ", all shards together " +
                           decimals_of(*n.precise)});
    }
    const double fixed_ones = std::max(*n.precise, n.saved);
    parts.push_back(
        {Cause::small_batch, *n.batch - fixed_ones,
         "a small batch: only the moments of the test batch itself, grouped as in training, reach " +
             decimals_of(*n.batch) + ", fixed statistics at most " + decimals_of(fixed_ones)});
  }
  if (n.ema) {
    const double mended = n.ema_precise.value_or(*n.ema);
    parts.push_back(
        {Cause::averaged_weights, n.saved - *n.ema,
         "averaged weights: they reach " + decimals_of(*n.ema) + ", those of the last step " + saved +
             (mended - *n.ema > n.saved - mended ? "; with recomputed statistics " + decimals_of(mended)
                                                 : "")});
  }
  return parts;
}

std::string none_of_these(const DiagnosisNumbers& n, double margin) {
  const double best = std::max({n.saved, n.precise.value_or(n.saved), n.batch.value_or(n.saved)});
  const std::string statistics =
      n.precise
          ? "the saved statistics reach " + decimals_of(n.saved) + ", recomputed ones " +
                decimals_of(*n.precise) + ", the test batch's own " + decimals_of(n.batch.value_or(n.saved))
          : "the strategy has no running statistics, and normalises alike in training and evaluation (" +
                decimals_of(n.saved) + ")";
  return "its statistics are not at fault: " + statistics +
         (n.training - best > margin ? "; training images reach " + decimals_of(n.training) +
                                           ", so the rest lies between training and test images"
                                     : "; training images reach " + decimals_of(n.training));
}

using Pairs = LoadedRun::Pairs;

// How far the statistics `a` lie from `b`, in deviations of `b`, the mean over sites and channels.
double distance(const Pairs& a, const Pairs& b) {
  const std::string mean = ".running_mean", var = ".running_var";
  double sum = 0;
  int64_t sites = 0;
  for (const auto& [name, tensor] : b) {
    if (!name.ends_with(mean)) continue;
    const auto found = b.find(name.substr(0, name.size() - mean.size()) + var);
    const at::Tensor deviation =
        found == b.end() ? at::ones_like(tensor) : found->second.clamp_min(1e-12).sqrt();
    sum += ((a.at(name) - tensor).abs() / deviation).mean().item<double>();
    ++sites;
  }
  return sum / static_cast<double>(std::max<int64_t>(sites, 1));
}

class Measuring {
 public:
  Measuring(LoadedRun& run, int64_t batches)
      : run_(run), batches_(batches), metric_(run.data().task().headline()) {}

  DiagnosisNumbers numbers() {
    DiagnosisNumbers n;
    n.metric = metric_;
    n.training = headline(run_.evaluator().measure_training(steps(), batches_));
    const Pairs saved = run_.pairs();
    n.saved = headline(run_.evaluator().measure(steps()));
    if (run_.model().statistics() == nullptr) return n;
    n.batch = headline(run_.evaluator().measure(steps(), {.kind = Population::Kind::batch}));
    const Pairs precise = recomputed({});
    n.precise = headline(run_.evaluator().measure(steps()));
    if (!run_.spec().shard_key.empty()) measure_nearest_shard(saved, precise, n);
    run_.put(saved);
    return n;
  }

 private:
  void measure_nearest_shard(const Pairs& saved, const Pairs& precise, DiagnosisNumbers& n) {
    double nearest = distance(saved, precise);
    Pairs of_nearest;
    for (int64_t tower = 0; tower < run_.data().towers().count(); ++tower) {
      if (run_.data().towers().samples(tower) == 0) continue;
      const Pairs shard = recomputed(tower);
      if (const double away = distance(saved, shard); away < nearest) {
        nearest = away;
        n.nearest_tower = tower;
        of_nearest = shard;
      }
    }
    if (n.nearest_tower) {
      run_.put(of_nearest);
      n.nearest_shard = headline(run_.evaluator().measure(steps()));
    }
  }

  Pairs recomputed(std::optional<int64_t> tower) {
    run_.evaluator().recompute(batches_, steps(), tower);
    return run_.pairs();
  }

  double headline(const Json& metrics) const {
    const Json& value = metrics.at(metric_);
    return value.is_number() ? value.get<double>() : 0;
  }
  int64_t steps() const { return run_.steps(); }

  LoadedRun& run_;
  int64_t batches_;
  std::string metric_;
};

}  // namespace

Diagnosis diagnosis_of(const DiagnosisNumbers& numbers, double margin) {
  std::vector<Won> parts = parts_of(numbers);
  std::erase_if(parts, [&](const Won& part) { return part.back <= margin; });
  std::ranges::stable_sort(parts, std::greater<>(), &Won::back);
  Diagnosis diagnosis;
  std::string text;
  for (const Won& part : parts) {
    diagnosis.causes.push_back(part.cause);
    text += (text.empty() ? "" : "; and ") + part.text;
  }
  diagnosis.sentence =
      "By " + numbers.metric + ": " + (parts.empty() ? none_of_these(numbers, margin) : text) + ".";
  return diagnosis;
}

DiagnosisNumbers diagnosis_numbers(const EvaluateJob& job) {
  at::set_num_threads(job.threads);
  allow_tf32(job.spec.tf32);
  DiagnosisNumbers numbers;
  on_thread_ranks(1, job.device == "cuda" ? at::kCUDA : at::kCPU, [&](World& world) {
    const at::NoGradGuard no_grad;
    LoadedRun run(job, world);
    numbers = Measuring(run, job.spec.precise_batches).numbers();
  });
  return numbers;
}

}  // namespace bnlab
