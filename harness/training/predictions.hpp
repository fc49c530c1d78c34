// What a network predicts for test images: from the whole image, or as the mean of the probabilities of
// overlapping crops, mirrored images and several scales.
#pragma once

#include <torch/types.h>

#include <functional>

#include "harness/experiment/spec.hpp"

namespace bnlab {

// From images [n, 3, h, w] to logits, of pixels [n, classes, h, w].
using LogitsOf = std::function<at::Tensor(const at::Tensor& images)>;

// Scores of the shape of logits_of(images), largest at the class that is predicted: the logits where the
// whole image is taken at once, else mean probabilities. Called by every rank: all have images of the same
// size, so that they go through the same crops.
at::Tensor predictions(const Evaluation& how, const at::Tensor& images, const LogitsOf& logits_of);

}  // namespace bnlab
