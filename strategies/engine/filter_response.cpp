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

// max(z + tau, tau) is max(z, 0) + tau: tau is taken off before ReLU, and added behind it.
class FilterResponseFunction : public torch::autograd::Function<FilterResponseFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Optional& given_weight,
                            const Optional& given_bias, const Optional& given_threshold,
                            const Optional& given_residual, Activation activation, double eps,
                            const kernels::Offsets& rows) {
    const at::Tensor weight = given_weight.value_or(at::Tensor()), bias = given_bias.value_or(at::Tensor());
    const at::Tensor threshold = given_threshold.value_or(at::Tensor());
    const at::Tensor residual = given_residual.value_or(at::Tensor());
    const kernels::Coefficients k = kernels::response_forward(kernels::moments(x, rows), eps, weight, bias,
                                                              threshold, statistics_type(x.scalar_type()));
    const at::Tensor z = kernels::normalise(x, rows, k.mean, k.scale, k.shift, activation, residual);
    const bool relu = activation == Activation::relu, from_input = relu && !residual.defined();
    ctx->save_for_backward({x, weight, relu ? z : at::Tensor(), threshold, k.mean, k.invstd, k.count,
                            from_input ? k.scale : at::Tensor(), from_input ? k.shift : at::Tensor()});
    ctx->saved_data["activation"] = static_cast<int64_t>(activation);
    ctx->saved_data["residual"] = residual.defined() && residual.requires_grad();
    ctx->saved_data["bias"] = bias.defined();
    ctx->saved_data["rows"] = rows;
    ctx->saved_data["eps"] = eps;
    if (!threshold.defined()) return z;
    at::Tensor y = at::empty_like(z);
    std::vector<int64_t> shape(static_cast<size_t>(z.dim()), 1);
    shape[1] = -1;
    return at::add_out(y, z, threshold.view(shape));
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
    const at::Tensor &x = saved[0], &weight = saved[1], &threshold = saved[3];
    const kernels::Incoming in{.dy = dys[0],
                               .x = x,
                               .y = saved[2],
                               .offsets = ctx->saved_data["rows"].toIntVector(),
                               .activation = static_cast<Activation>(ctx->saved_data["activation"].toInt()),
                               .mean = saved[4],
                               .from_input = {.scale = saved[7], .shift = saved[8]}};
    const bool has_bias = ctx->saved_data["bias"].toBool(), residual = ctx->saved_data["residual"].toBool();
    if (at::GradMode::is_enabled()) {
      const at::Tensor g = differentiable(in);
      const NormGradients d =
          gradients_of(formula(x.to(g.scalar_type()), ctx->saved_data["eps"].toDouble()), g, weight);
      const at::Tensor through = slice_sums(dys[0].to(g.scalar_type()), {0, x.size(0)})[0];
      return {d.dx.to(x.scalar_type()),
              weight.defined() ? d.dweight : at::Tensor(),
              has_bias ? d.dbias : at::Tensor(),
              threshold.defined() ? through - d.dbias : at::Tensor(),
              residual ? g.to(x.scalar_type()) : at::Tensor(),
              {},
              {},
              {}};
    }
    const kernels::Coefficients forward{.mean = saved[4], .invstd = saved[5], .count = saved[6]};
    at::Tensor total, dthreshold;
    if (threshold.defined()) {
      std::vector<int64_t> but_channels(static_cast<size_t>(x.dim()) - 1, 0);
      std::iota(but_channels.begin() + 1, but_channels.end(), 2);
      total = at::sum(dys[0], but_channels, /*keepdim=*/false, threshold.scalar_type());
      dthreshold = at::empty_like(threshold);
    }
    const kernels::BackwardCoefficients k =
        kernels::response_backward(forward, in.sums(in.mean), weight, total, dthreshold);
    const at::Tensor dx = ctx->needs_input_grad(0) ? in.input_gradient(in.mean, k.a, k.b, k.c) : at::Tensor();
    const at::Tensor dresidual = residual ? in.g() : at::Tensor();
    return {dx,
            weight.defined() ? k.dweight : at::Tensor(),
            has_bias ? k.dbias : at::Tensor(),
            dthreshold,
            dresidual,
            {},
            {},
            {}};
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
  // A narrow dtype would be rounded before tau is added, and again behind it.
  const at::Tensor threshold = parameter("threshold");
  const at::ScalarType narrow = x.scalar_type(),
                       wide = threshold.defined() ? statistics_type(narrow) : narrow;
  residual = residual.defined() ? residual.to(wide) : residual;
  return FilterResponseFunction::apply(x.to(wide), given_tensor(parameter("weight")),
                                       given_tensor(parameter("bias")), given_tensor(threshold),
                                       given_tensor(residual), site_.activation, rules_.eps,
                                       rows_of_samples(x))
      .to(narrow);
}

}  // namespace bnlab
