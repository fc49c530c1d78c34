// Why a network evaluates worse than it trains, as far as its normalisation is the reason: for `bnlab
// diagnose`. The same weights are measured with several statistics; what each wins back names the cause.
// Needs no LibTorch to include.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/components/options.hpp"
#include "harness/inference/trained_run.hpp"

namespace bnlab {

BNLAB_CHOICE(Cause, lagging_statistics, small_batch, skewed_shards, averaged_weights)

// One metric, on which higher is better, of the same weights.
struct DiagnosisNumbers {
  std::string metric;   // "mean_iou"
  double training = 0;  // on training images, under the moments of their batch, as the network trains
  double saved = 0;     // all others of test images: by the saved statistics
  // By recomputed ones, and by the moments of the test batch; nothing without running statistics.
  std::optional<double> precise, batch;
  // By statistics recomputed over the shard of one tower, where the saved ones lie nearer to these than to
  // those recomputed over all shards.
  std::optional<int64_t> nearest_tower;
  std::optional<double> nearest_shard;
  // Of the averaged weights, as the run's record has them.
  std::optional<double> ema, ema_precise;
};

struct Diagnosis {
  std::vector<Cause> causes;  // what loses more than the margin, the largest loss first; empty: none of them
  std::string sentence;
};

// margin: differences up to it count as none.
Diagnosis diagnosis_of(const DiagnosisNumbers& numbers, double margin);

// Measures the weights of a job on one rank; all but what a record holds. Throws Error as evaluate_weights
// does.
DiagnosisNumbers diagnosis_numbers(const EvaluateJob& job);

}  // namespace bnlab
