// How test images are answered: in one piece, or in crops that overlap, mirrored and at several scales too, whose
// probabilities are averaged.
#pragma once

#include <torch/types.h>

#include <functional>

#include "harness/experiment/spec.hpp"

namespace bnlab {

// From images [n, 3, h, w] to logits, of pixels [n, classes, h, w].
using LogitsOf = std::function<at::Tensor(const at::Tensor& images)>;

// What is largest at the class that is answered, like logits_of(images): its logits where all is done in one piece, else
// mean probabilities. Called by every rank: all have images of the same size, so that they go through the same crops.
at::Tensor answers(const Evaluation& how, const at::Tensor& images, const LogitsOf& logits_of);

}  // namespace bnlab
