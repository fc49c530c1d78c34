// What networks for classification end in: parameters that no strategy makes, with the names and the initial
// values of torch.nn, drawn by (seed, name).
#pragma once

#include <cmath>
#include <string>

#include <torch/types.h>

#include "harness/models/model.hpp"
#include "harness/random.hpp"

namespace bnlab {

// From U(-bound, bound). `name`: the parameter's path in the network.
inline at::Tensor uniform_weights(const Model::Context& context, const std::string& name,
                                  at::IntArrayRef sizes, double bound) {
  at::Tensor weights = at::empty(sizes, at::kDouble);
  Stream stream(context.seed, "weights/" + name);
  double* values = weights.mutable_data_ptr<double>();
  for (int64_t i = 0; i < weights.numel(); ++i) {
    values[i] = stream.uniform(-bound, bound);
  }
  return weights.to(context.parameters);
}

class Linear : public torch::nn::Module {
 public:
  Linear(const Model::Context& context, const std::string& name, int64_t in, int64_t out) {
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    weight_ = register_parameter("weight", uniform_weights(context, name + ".weight", {out, in}, bound));
    bias_ = register_parameter("bias", uniform_weights(context, name + ".bias", {out}, bound));
  }

  // [n, in] -> [n, out]
  at::Tensor forward(const at::Tensor& x) const { return at::linear(x, weight_, bias_); }

 private:
  at::Tensor weight_, bias_;
};

}  // namespace bnlab
