// Gradients averaged in one exchange, once backward has made all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "harness/communicator/gradient_sync.hpp"

namespace bnlab {

// What the ranks do with one flat tensor, in place; it is then the same on all of them.
using FlatExchange = std::function<void(at::Tensor& flat)>;

// Packs the tensors of each dtype into one flat tensor, exchanges it and unpacks it where it came from.
void exchange_flat(const std::vector<at::Tensor>& tensors, const FlatExchange& exchange);

// `exchange` makes the mean over the ranks. All parameters need gradients.
std::unique_ptr<GradientSync> make_flat_sync(std::vector<at::Tensor> parameters, FlatExchange exchange);

// What after_step() does where gradients are no views of buckets.
void drop_gradients(const std::vector<at::Tensor>& parameters);

}  // namespace bnlab
