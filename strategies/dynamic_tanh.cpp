// dynamic_tanh: no moments at all; activations are squashed by tanh with a learned slope, one for each site
// (Zhu et al. 2025, for transformers; here in the place of batch norm). For bfloat16 and float16 it is
// computed in float32 and rounded once.
//   y = gamma t + beta, t = tanh(alpha x)
//   with u = gamma g (1 - t^2): dx = alpha u, dalpha = sum u x, dgamma = sum g t, dbeta = sum g
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include "harness/components/registry.hpp"
#include "harness/strategy.hpp"
#include "harness/writable_layer.hpp"
#include "strategies/engine/second_derivative.hpp"
#include "strategies/kernels/kernels.hpp"
#include "strategies/kernels/squash.hpp"

namespace bnlab::dynamic_tanh {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The gradients behind tanh are those of a norm whose moments are the constants 0 and 1.
class SquashFunction : public torch::autograd::Function<SquashFunction> {
 public:
  using Optional = std::optional<at::Tensor>;  // an undefined tensor is no argument of a Function

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& alpha,
                            const Optional& given_weight, const Optional& bias, const Optional& residual,
                            Activation activation) {
    const at::Tensor t = at::tanh(x * alpha);
    const at::Tensor weight = given_weight.value_or(at::Tensor());
    const kernels::Coefficients k =
        kernels::affine_coefficients(x.size(1), alpha.options(), weight, bias.value_or(at::Tensor()));
    const at::Tensor y = kernels::normalise(t, {0, t.size(0)}, k.mean, k.scale, k.shift, activation,
                                            residual.value_or(at::Tensor()));
    ctx->save_for_backward(
        {x, alpha, t, activation == Activation::relu ? y : at::Tensor(), weight, k.mean, k.invstd});
    ctx->saved_data["activation"] = static_cast<int64_t>(activation);
    ctx->saved_data["residual"] = residual.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &alpha = saved[1], &t = saved[2], &weight = saved[4];
    const bool affine = weight.defined(), residual = ctx->saved_data["residual"].toBool();
    const kernels::Incoming in{.dy = dys[0],
                               .x = t,
                               .y = saved[3],
                               .offsets = {0, t.size(0)},
                               .activation = static_cast<Activation>(ctx->saved_data["activation"].toInt()),
                               .mean = saved[5],
                               .from_input = {}};
    if (at::GradMode::is_enabled()) {
      const at::Tensor g = differentiable(in), again = at::tanh(x * alpha);
      const NormGradients d = gradients_of({.normalised = again}, g, weight);
      const at::Tensor u = d.dx * (1 - again.square());
      return {alpha * u,
              (u * x).sum().view({1}),
              affine ? d.dweight : at::Tensor(),
              affine ? d.dbias : at::Tensor(),
              residual ? g : at::Tensor(),
              {}};
    }
    const kernels::Coefficients forward{.mean = saved[5], .invstd = saved[6]};
    const kernels::BackwardCoefficients k =
        kernels::local_backward(in, forward, /*through_moments=*/false, /*mean_only=*/false, weight);
    const kernels::SquashGradient gradient =
        kernels::squash_gradient(in.input_gradient(in.mean, k.a, k.b, k.c), x, t, alpha);
    return {gradient.dx,
            gradient.terms.sum().view({1}),
            affine ? k.dweight : at::Tensor(),
            affine ? k.dbias : at::Tensor(),
            residual ? in.g() : at::Tensor(),
            {}};
  }
};

class Squash : public WritableLayer {
 public:
  Squash(const NormSite& site, double alpha, bool affine, const at::TensorOptions& options)
      : activation_(site.activation) {
    register_parameter("alpha", at::full({1}, alpha, options));
    if (affine) {
      register_parameter("weight", at::ones({site.channels}, options));
      register_parameter("bias", at::zeros({site.channels}, options));
    }
  }

  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass&) override {
    const auto given = [](const at::Tensor& t) {
      return t.defined() ? SquashFunction::Optional(t) : std::nullopt;
    };
    const at::ScalarType narrow = x.scalar_type(), wide = statistics_type(narrow);
    residual = residual.defined() ? residual.to(wide) : residual;
    x = x.to(wide).contiguous(x.suggest_memory_format());  // as the sweeps leave it
    return SquashFunction::apply(x, parameter("alpha"), given(parameter("weight")), given(parameter("bias")),
                                 given(residual), activation_)
        .to(narrow);
  }

 private:
  Activation activation_;
};

class DynamicTanh : public Strategy {
 public:
  struct Options {
    double alpha = 0.5;
    bool affine = true;

    void describe(OptionVisitor& option) {
      option("alpha", alpha, "slope that every site starts with").above(0);
      option("affine", affine, "whether there are a weight and a bias per channel");
    }
  };

  DynamicTanh(const Options& options, const Context& context) : Strategy(context), options_(options) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override {
    return std::make_shared<Squash>(
        site, options_.alpha, options_.affine && site.affine,
        at::TensorOptions().device(context_.device).dtype(statistics_type(context_.dtype)));
  }

  StepWork work(const Step&) const override { return {}; }

 private:
  Options options_;
};

const Registered<Strategy> entry{
    {.name = "dynamic_tanh",
     .summary = "no statistics: activations are squashed by tanh with a learned slope per site",
     .source = "Zhu et al. 2025 (DyT, \"Transformers without normalization\")",
     .formula = "y = gamma tanh(alpha x) + beta, alpha one number per site, gamma and beta per channel\n"
                "the same in training and evaluation",
     .exchanges = "none",
     .use = "to ask how much of normalisation is its squashing; published for transformers",
     .limits =
         "nothing holds the scale of a site's input; in the place of batch norm it is reported to lose"},
    make<Strategy, DynamicTanh>};

}  // namespace bnlab::dynamic_tanh
