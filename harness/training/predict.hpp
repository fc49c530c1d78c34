// What a trained network answers for single test images, for people's eyes. Needs no LibTorch to include.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/training/evaluate.hpp"

namespace bnlab {

constexpr uint8_t kVoidId = 255;  // of a pixel whose class nobody knows

struct Prediction {
  int64_t sample = 0;  // of the test split
  int64_t height = 0, width = 0;
  std::vector<uint8_t> image;   // [height, width, 3], red, green, blue: as the network sees it, made visible
  std::vector<uint8_t> truth;   // [height, width], class ids, kVoidId
  std::vector<uint8_t> answer;  // [height, width], class ids
};

// The answers for these test samples (if none is named, for `count` at most, spread evenly over the test split) under
// the first of the job's populations, each computed as the evaluation of the run computes it, in its batch; in one
// rank. Throws Error as evaluate_weights does, usage for a sample that the test split does not have, and refused where
// the task does not label pixels.
std::vector<Prediction> predict(const EvaluateJob& job, const std::vector<int64_t>& samples, int64_t count);

}  // namespace bnlab
