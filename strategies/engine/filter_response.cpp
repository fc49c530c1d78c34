#include "strategies/engine/filter_response.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "strategies/engine/sample_norm.hpp"
#include "strategies/engine/second_derivative.hpp"
#include "strategies/kernels/kernels.hpp"
#include "strategies/kernels/response.hpp"

namespace bnlab {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using Optional = std::optional<at::Tensor>;  // an undefined tensor is no argument of a Function

Optional given_tensor(const at::Tensor& t) {
  return t.defined() ? Optional(t) : std::nullopt;
}

class FilterResponseFunction : public torch::autograd::Function<FilterResponseFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Optional& weight,
                            const Optional& bias, const Optional& threshold, const Optional& given_residual,
                            Activation activation, double eps, const kernels::Offsets& rows) {
    const at::Tensor residual = given_residual.value_or(at::Tensor());
    const kernels::ResponseOptions options{.eps = eps,
                                           .weight = weight.value_or(at::Tensor()),
                                           .bias = bias.value_or(at::Tensor()),
                                           .threshold = threshold.value_or(at::Tensor()),
                                           .activation = activation};
    const kernels::Response made = kernels::response(x, rows, residual, options);
    const kernels::Coefficients& k = made.k;
    const bool relu = activation == Activation::relu, from_input = relu && !residual.defined();
    const bool adds_again = relu && residual.defined() && x.is_cuda();
    ctx->save_for_backward({x, options.weight, relu ? made.z : at::Tensor(), options.threshold, k.mean,
                            k.invstd, k.scale, k.shift, options.bias, adds_again ? residual : at::Tensor()});
    ctx->saved_data["activation"] = static_cast<int64_t>(activation);
    ctx->saved_data["from_input"] = from_input;
    ctx->saved_data["residual"] = residual.defined() && residual.requires_grad();
    ctx->saved_data["rows"] = rows;
    ctx->saved_data["eps"] = eps;
    return made.y;
  }

  // About 0, over the positions of each channel of a sample.
  static NormFormula formula(const at::Tensor& x, double eps) {
    const auto mean = [](const at::Tensor& t) {
      std::vector<int64_t> positions(static_cast<size_t>(t.dim()) - 2);
      std::iota(positions.begin(), positions.end(), 2);
      return positions.empty() ? t : t.mean(positions, /*keepdim=*/true);
    };
    const at::Tensor scale = (mean(x.square()) + eps).rsqrt();
    return {.normalised = x * scale, .scale = scale, .mean = mean, .centred = false};
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &residual = saved[9];
    const kernels::ResponseOptions options{
        .eps = ctx->saved_data["eps"].toDouble(),
        .weight = saved[1],
        .bias = saved[8],
        .threshold = saved[3],
        .activation = static_cast<Activation>(ctx->saved_data["activation"].toInt())};
    const kernels::Coefficients k{.mean = saved[4], .invstd = saved[5], .scale = saved[6], .shift = saved[7]};
    kernels::Incoming in{.dy = dys[0],
                         .x = x,
                         .y = saved[2],
                         .offsets = ctx->saved_data["rows"].toIntVector(),
                         .activation = options.activation,
                         .mean = k.mean,
                         .from_input = {}};
    if (ctx->saved_data["from_input"].toBool()) in.from_input = {.scale = k.scale, .shift = k.shift};
    const bool with_residual = ctx->saved_data["residual"].toBool();
    if (at::GradMode::is_enabled()) {
      if (x.is_cuda()) in.mean = at::zeros_like(k.scale);
      if (residual.defined())
        in.y = kernels::normalise(x, in.offsets, in.mean, k.scale, k.shift, in.activation, residual);
      const at::Tensor g = differentiable(in);
      const NormGradients d = gradients_of(formula(x.to(g.scalar_type()), options.eps), g, options.weight);
      const at::Tensor through = slice_sums(dys[0].to(g.scalar_type()), {0, x.size(0)})[0];
      return {d.dx.to(x.scalar_type()),
              options.weight.defined() ? d.dweight : at::Tensor(),
              options.bias.defined() ? d.dbias : at::Tensor(),
              options.threshold.defined() ? through - d.dbias : at::Tensor(),
              with_residual ? g.to(x.scalar_type()) : at::Tensor(),
              {},
              {},
              {}};
    }
    const kernels::ResponseGradients d =
        kernels::response_gradients(in, residual, k, options, ctx->needs_input_grad(0), with_residual);
    return {d.dx, d.dweight, d.dbias, d.dthreshold, d.dresidual, {}, {}, {}};
  }
};

}  // namespace

FilterResponseNorm::FilterResponseNorm(const NormSite& site, const FilterResponseRules& rules,
                                       const at::TensorOptions& statistics)
    : site_(site), rules_(rules) {
  if (rules.affine) {
    register_parameter("weight", at::ones({site.channels}, statistics));
    register_parameter("bias", at::zeros({site.channels}, statistics));
  }
  if (rules.threshold && site.activation == Activation::relu)
    register_parameter("threshold", at::zeros({site.channels}, statistics));
}

at::Tensor FilterResponseNorm::forward(at::Tensor x, at::Tensor residual, const Pass& pass) {
  check_values_per_channel(site_, rules_.strategy, /*channels=*/1, x, pass);
  // Where tau is added by itself, a narrow dtype would be rounded before and behind it.
  const at::Tensor threshold = parameter("threshold");
  const at::ScalarType narrow = x.scalar_type(),
                       wide = threshold.defined() && !x.is_cuda() ? statistics_type(narrow) : narrow;
  residual = residual.defined() ? residual.to(wide) : residual;
  return FilterResponseFunction::apply(x.to(wide), given_tensor(parameter("weight")),
                                       given_tensor(parameter("bias")), given_tensor(threshold),
                                       given_tensor(residual), site_.activation, rules_.eps,
                                       rows_of_samples(x))
      .to(narrow);
}

}  // namespace bnlab
