// A run that has left its weights, asked without training: its numbers under several populations, for
// `bnlab evaluate`, and what it predicts for single test images, for `bnlab predict`. Needs no LibTorch to
// include.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/inference/evaluate_job.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// {"saved": {metrics}, ...}: what the run would record at its end, in the order of `populations`; of a
// strategy without running statistics only "saved". Population `precise` is recomputed from the saved pairs
// of the file, which matters to a strategy whose training depends on its running statistics. Throws Error:
// data for a file that cannot be used or holds no such pair, refused where weights and spec, or ranks and
// towers, do not fit.
Json evaluate_weights(const EvaluateJob& job);

constexpr uint8_t kVoidId = 255;  // nobody knows the pixel's class

struct Prediction {
  int64_t sample = 0;  // in the test split
  int64_t height = 0, width = 0;
  std::vector<uint8_t> image;      // [height, width, 3], red, green, blue: what the network sees
  std::vector<uint8_t> truth;      // [height, width], class ids, kVoidId
  std::vector<uint8_t> predicted;  // [height, width], class ids
};

// The predictions for these test samples under the first of the job's populations; where no sample is named,
// for at most `count` of them, spread evenly over the test split. One rank computes each in its batch, as the
// evaluation of the run does. Throws Error as evaluate_weights does, usage for a sample that the test split
// does not have, and refused where the task does not label pixels.
std::vector<Prediction> predict(const EvaluateJob& job, const std::vector<int64_t>& samples, int64_t count);

}  // namespace bnlab
