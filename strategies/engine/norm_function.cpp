#include "strategies/engine/norm_function.hpp"

#include <torch/csrc/autograd/custom_function.h>

namespace bnlab {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class Apply : public torch::autograd::Function<Apply> {
 public:
  using Optional = std::optional<at::Tensor>;  // an undefined tensor is no argument of a Function

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Optional& given_weight,
                            const Optional& given_bias, const Optional& given_residual,
                            const kernels::Offsets& offsets, Activation activation,
                            const c10::intrusive_ptr<Normalisation>& normalisation) {
    const at::Tensor weight = given_weight.value_or(at::Tensor()), bias = given_bias.value_or(at::Tensor());
    const at::Tensor residual = given_residual.value_or(at::Tensor());
    const ForwardCoefficients k = normalisation->forward(x, offsets, weight, bias);
    const at::Tensor y = kernels::normalise(x, offsets, k.mean, k.scale, k.shift, activation, residual);
    ctx->save_for_backward({x, weight, activation == Activation::none ? at::Tensor() : y});
    ctx->saved_data["offsets"] = offsets;
    ctx->saved_data["activation"] = static_cast<int64_t>(activation);
    ctx->saved_data["residual"] = residual.defined() && residual.requires_grad();
    ctx->saved_data["normalisation"] = c10::IValue::make_capsule(normalisation);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& weight = saved[1];
    const Incoming in{dys[0], saved[0], saved[2], ctx->saved_data["offsets"].toIntVector(),
                      static_cast<Activation>(ctx->saved_data["activation"].toInt())};
    auto capsule = ctx->saved_data["normalisation"].toCapsule();
    const BackwardCoefficients k = static_cast<Normalisation&>(*capsule).backward(in, weight);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      dx = kernels::backward_input(in.dy, in.x, in.y, in.offsets, k.mean, k.a, k.b, k.c, in.activation);
    }
    const at::Tensor dresidual = ctx->saved_data["residual"].toBool() ? in.g() : at::Tensor();
    const bool affine = weight.defined();
    return {dx, affine ? k.dweight : at::Tensor(), affine ? k.dbias : at::Tensor(), dresidual, {}, {}, {}};
  }
};

}  // namespace

at::Tensor Incoming::sums(const at::Tensor& mean) const {
  return kernels::backward_sums(dy, x, y, offsets, mean, activation);
}

at::Tensor Incoming::g() const {
  return kernels::backward_residual(dy, y, activation);
}

ForwardCoefficients affine_coefficients(const at::Tensor& mean, const at::Tensor& invstd,
                                        const at::Tensor& weight, const at::Tensor& bias) {
  ForwardCoefficients k;
  k.mean = mean;
  k.scale = weight.defined() ? invstd * weight : invstd;
  k.shift = bias.defined() ? bias.unsqueeze(0).expand_as(k.scale) : at::zeros_like(k.scale);
  return k;
}

at::Tensor normalise_slices(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                            const at::Tensor& bias, const kernels::Offsets& offsets, Activation activation,
                            const c10::intrusive_ptr<Normalisation>& normalisation) {
  const auto optional = [](const at::Tensor& t) {
    return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
  };
  return Apply::apply(x, optional(weight), optional(bias), optional(residual), offsets, activation,
                      normalisation);
}

}  // namespace bnlab
