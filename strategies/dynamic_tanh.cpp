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
#include "strategies/kernels/squash.hpp"

namespace bnlab::dynamic_tanh {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class SquashFunction : public torch::autograd::Function<SquashFunction> {
 public:
  using Optional = std::optional<at::Tensor>;  // an undefined tensor is no argument of a Function

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& alpha,
                            const Optional& weight, const Optional& bias, const Optional& residual,
                            Activation activation) {
    const kernels::SquashOptions options{.alpha = alpha,
                                         .weight = weight.value_or(at::Tensor()),
                                         .bias = bias.value_or(at::Tensor()),
                                         .activation = activation};
    const kernels::Squash made = kernels::squash(x, residual.value_or(at::Tensor()), options);
    ctx->save_for_backward({x, alpha, made.t, activation == Activation::relu ? made.y : at::Tensor(),
                            options.weight, options.bias});
    ctx->saved_data["activation"] = static_cast<int64_t>(activation);
    ctx->saved_data["residual"] = residual.has_value();
    return made.y;
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &y = saved[3];
    const kernels::SquashOptions options{
        .alpha = saved[1],
        .weight = saved[4],
        .bias = saved[5],
        .activation = static_cast<Activation>(ctx->saved_data["activation"].toInt())};
    const bool affine = options.weight.defined(), residual = ctx->saved_data["residual"].toBool();
    if (at::GradMode::is_enabled()) {
      const kernels::Incoming in{.dy = dys[0],
                                 .x = x,
                                 .y = y,
                                 .offsets = {0, x.size(0)},
                                 .activation = options.activation,
                                 .mean = options.alpha,
                                 .from_input = {}};
      const at::Tensor g = differentiable(in), again = at::tanh(x * options.alpha);
      const NormGradients d = gradients_of({.normalised = again}, g, options.weight);
      const at::Tensor u = d.dx * (1 - again.square());
      return {(options.alpha * u).to(x.scalar_type()),
              (u * x).sum().view({1}),
              affine ? d.dweight : at::Tensor(),
              affine ? d.dbias : at::Tensor(),
              residual ? g.to(x.scalar_type()) : at::Tensor(),
              {}};
    }
    const kernels::SquashGradients d = kernels::squash_gradients(dys[0], x, y, saved[2], options, residual);
    return {d.dx, d.dalpha, d.dweight, d.dbias, d.dresidual, {}};
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
    const at::ScalarType narrow = x.scalar_type(), wide = x.is_cuda() ? narrow : statistics_type(narrow);
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
