#include "strategies/engine/norm_function.hpp"

#include <torch/csrc/autograd/custom_function.h>

#include <string>

#include "harness/recomputation.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class NormFunction : public torch::autograd::Function<NormFunction> {
 public:
  using Optional = std::optional<at::Tensor>;  // an undefined tensor is no argument of a Function

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Optional& given_weight,
                            const Optional& given_bias, const Optional& given_residual, Activation activation,
                            const c10::intrusive_ptr<NormPass>& pass, bool repeats) {
    const at::Tensor weight = given_weight.value_or(at::Tensor()), bias = given_bias.value_or(at::Tensor());
    const at::Tensor residual = given_residual.value_or(at::Tensor());
    if (!repeats) pass->forward(x, weight, bias);
    const kernels::Coefficients& k = pass->coefficients();
    const at::Tensor y =
        kernels::normalise(x, pass->offsets(), k.mean, k.scale, k.shift, activation, residual);
    const bool relu = activation == Activation::relu, from_input = relu && !residual.defined();
    const bool by_float = x.is_cpu() && x.scalar_type() == at::kHalf;  // another x is computed in float
    const bool needs_outputs = relu && (!from_input || by_float || pass->needs_outputs());
    ctx->save_for_backward({x, weight, needs_outputs ? y : at::Tensor()});
    ctx->saved_data["from_input"] = from_input;
    ctx->saved_data["activation"] = static_cast<int64_t>(activation);
    ctx->saved_data["residual"] = residual.defined() && residual.requires_grad();
    ctx->saved_data["pass"] = c10::IValue::make_capsule(pass);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& weight = saved[1];
    auto capsule = ctx->saved_data["pass"].toCapsule();
    auto& pass = static_cast<NormPass&>(*capsule);
    const auto activation = static_cast<Activation>(ctx->saved_data["activation"].toInt());
    const bool from_input = ctx->saved_data["from_input"].toBool();
    const kernels::Coefficients& forward = pass.coefficients();
    const kernels::Incoming in{.dy = dys[0],
                               .x = saved[0],
                               .y = saved[2],
                               .offsets = pass.offsets(),
                               .activation = activation,
                               .mean = forward.mean,
                               .from_input = {.scale = from_input ? forward.scale : at::Tensor(),
                                              .shift = from_input ? forward.shift : at::Tensor()}};
    const bool affine = weight.defined();
    if (at::GradMode::is_enabled()) {
      const at::Tensor g = differentiable(in);
      const NormGradients d = gradients_of(pass.formula(in.x.to(g.scalar_type())), g, weight);
      const at::ScalarType type = in.x.scalar_type();
      return {d.dx.to(type),
              affine ? d.dweight : at::Tensor(),
              affine ? d.dbias : at::Tensor(),
              ctx->saved_data["residual"].toBool() ? g.to(type) : at::Tensor(),
              {},
              {},
              {}};
    }
    const kernels::BackwardCoefficients k = pass.backward(in, weight);
    const at::Tensor dx = ctx->needs_input_grad(0) ? in.input_gradient(k.mean, k.a, k.b, k.c) : at::Tensor();
    const at::Tensor dresidual = ctx->saved_data["residual"].toBool() ? in.g() : at::Tensor();
    return {dx, affine ? k.dweight : at::Tensor(), affine ? k.dbias : at::Tensor(), dresidual, {}, {}, {}};
  }
};

std::optional<at::Tensor> given(const at::Tensor& t) {
  return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt;
}

void check_parameter(const at::Tensor& parameter, const at::Tensor& x) {
  const at::ScalarType expected = statistics_type(x.scalar_type());
  if (parameter.defined() && (parameter.scalar_type() != expected || parameter.device() != x.device())) {
    throw Error(Error::Kind::refused,
                std::string("weight and bias of a norm: expected ") + at::toString(expected) + " on " +
                    x.device().str() + " beside these activations, got " +
                    at::toString(parameter.scalar_type()) + " on " + parameter.device().str());
  }
}

}  // namespace

at::Tensor apply_norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                      const at::Tensor& bias, Activation activation,
                      const c10::intrusive_ptr<NormPass>& norm_pass, const Pass& pass) {
  check_parameter(weight, x);
  check_parameter(bias, x);
  Kept* kept = pass.details.kept;
  return NormFunction::apply(x, given(weight), given(bias), given(residual), activation,
                             kept != nullptr ? kept->same(norm_pass) : norm_pass,
                             kept != nullptr && kept->repeats());
}

}  // namespace bnlab
