// Softmax cross-entropy, label by label and weighted tower by tower.
#pragma once

#include <torch/types.h>

#include <vector>

namespace bnlab {

// The negative logarithm of the probability of each label's class, 0 where the label is Task::kVoid; in
// float32, or float64 for float64 outputs. outputs: [n, classes, H, W]; labels and result: [n, H, W].
at::Tensor cross_entropy_of_labels(const at::Tensor& outputs, const at::Tensor& labels);

// sum over the slices g of weights[g] * (sum of the cross-entropy of the valid labels of the samples from
// offsets[g] to offsets[g + 1]); a scalar. A slice without valid labels adds 0 (not NaN) to the loss and to
// its gradient, whatever its weight. One reduction serves all slices where there is one or `weights` is an
// expanded scalar (stride 0), which is known without reading the device.
at::Tensor weighted_cross_entropy(const at::Tensor& outputs, const at::Tensor& labels,
                                  const std::vector<int64_t>& offsets, const at::Tensor& weights);

}  // namespace bnlab
