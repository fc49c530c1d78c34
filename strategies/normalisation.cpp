#include "strategies/normalisation.hpp"

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
    const at::Tensor moments = normalisation->needs_moments() ? kernels::moments(x, offsets) : at::Tensor();
    const ForwardCoefficients k = normalisation->forward(moments, weight, bias);
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
    const at::Tensor &x = saved[0], &weight = saved[1], &y = saved[2];
    const auto offsets = ctx->saved_data["offsets"].toIntVector();
    const auto activation = static_cast<Activation>(ctx->saved_data["activation"].toInt());
    auto capsule = ctx->saved_data["normalisation"].toCapsule();
    auto& normalisation = static_cast<Normalisation&>(*capsule);

    const at::Tensor sums =
        kernels::backward_sums(dys[0], x, y, offsets, normalisation.sums_mean(), activation);
    const BackwardCoefficients k = normalisation.backward(sums, weight);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      dx = kernels::backward_input(dys[0], x, y, offsets, k.mean, k.a, k.b, k.c, activation);
    }
    at::Tensor dresidual;
    if (ctx->saved_data["residual"].toBool()) {
      dresidual = kernels::backward_residual(dys[0], y, activation);
    }
    const bool affine = weight.defined();
    return {dx, affine ? k.dweight : at::Tensor(), affine ? k.dbias : at::Tensor(), dresidual, {}, {}, {}};
  }
};

}  // namespace

at::ScalarType statistics_type(at::ScalarType input) {
  return input == at::kDouble ? at::kDouble : at::kFloat;
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
