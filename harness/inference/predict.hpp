// What a trained network predicts for single test images, for people to look at. Needs no LibTorch to
// include.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/inference/evaluate.hpp"

namespace bnlab {

constexpr uint8_t kVoidId = 255;  // of a pixel whose class nobody knows

struct Prediction {
  int64_t sample = 0;  // of the test split
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
