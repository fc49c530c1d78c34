#include "strategies/engine/second_derivative.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <numeric>

#include "harness/communicator/communicator.hpp"
#include "strategies/engine/exchange/route.hpp"

namespace bnlab {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::vector<int64_t> all_but_channels(int64_t dims) {
  std::vector<int64_t> others(static_cast<size_t>(dims) - 1, 0);
  std::iota(others.begin() + 1, others.end(), 2);
  return others;
}

class SumOverRanks : public torch::autograd::Function<SumOverRanks> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, Communicator* communicator,
                            const std::string& site) {
    ctx->saved_data["communicator"] = reinterpret_cast<int64_t>(communicator);
    ctx->saved_data["site"] = site;
    at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
    at_site(site, "backward", [&] { communicator->all_reduce(sum, Purpose::statistics); });
    return sum;
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    auto* communicator = reinterpret_cast<Communicator*>(ctx->saved_data["communicator"].toInt());
    return {apply(gradients[0], communicator, ctx->saved_data["site"].toStringRef()), {}, {}};
  }
};

}  // namespace

NormFormula batch_formula(const at::Tensor& x, const Rules& rules, const kernels::Offsets& offsets,
                          const kernels::Coefficients& forward, const at::Tensor& unbiased,
                          const std::function<at::Tensor(const at::Tensor&)>& pooled) {
  const Gradient gradient = rules.gradient;
  // Of t over this rank's sets, divided by what shares their moments; and the mean over all that shares them,
  // of which a constant is what the gradient does not pass through.
  const auto part = [offsets, count = forward.count](const at::Tensor& t) {
    return slice_sums(t, offsets) / count;
  };
  const auto mean = [part, gradient, pooled](const at::Tensor& t) {  // [G, C]
    const at::Tensor own = part(t);
    return gradient == Gradient::full      ? pooled(own)
           : gradient == Gradient::stopped ? pooled(own.detach())
                                           : pooled(own.detach()) + own - own.detach();
  };
  const auto rows = [offsets, dims = x.dim()](const at::Tensor& t) { return at_rows(t, offsets, dims); };
  NormFormula formula;
  if (gradient != Gradient::stopped)
    formula.mean = [=](const at::Tensor& t) { return rows(gradient == Gradient::full ? mean(t) : part(t)); };
  const at::Tensor m = mean(x);
  formula.normalised = x - rows(m);
  if (rules.mean_only) return formula;
  at::Tensor own, var;
  if (rules.merge == Merge::averaged) {
    own = x - rows(slice_sums(x, offsets) / slice_sums(at::ones_like(x), offsets).clamp_min(1));
    var = mean(own.square());
  } else {  // about any constant, of which the mean itself loses no digits
    const at::Tensor about = rules.merge == Merge::e_x2 ? at::zeros_like(m) : forward.mean;
    var = mean((x - rows(about)).square()) - (m - about).square();
  }
  if (unbiased.defined()) var = var * unbiased;
  formula.scale = rows((var + rules.eps).rsqrt());
  formula.normalised = formula.normalised * formula.scale;
  formula.about_own = own.defined() ? own * formula.scale : own;
  if (unbiased.defined())
    formula.about_own = (own.defined() ? formula.about_own : formula.normalised) * rows(unbiased);
  return formula;
}

NormGradients gradients_of(const NormFormula& formula, const at::Tensor& g, const at::Tensor& weight) {
  const at::Tensor& z = formula.normalised;
  const at::Tensor scaled = weight.defined() ? g * per_channel(weight, g.dim()) : g;
  at::Tensor dx = scaled;
  if (formula.mean && formula.centred) dx = dx - formula.mean(scaled);
  if (formula.mean && formula.scale.defined())
    dx = dx - (formula.about_own.defined() ? formula.about_own : z) * formula.mean(scaled * z);
  const std::vector<int64_t> others = all_but_channels(g.dim());
  return {formula.scale.defined() ? dx * formula.scale : dx, (g * z).sum(others), g.sum(others)};
}

at::Tensor differentiable(const kernels::Incoming& in) {
  const at::Tensor dy = in.dy.to(statistics_type(in.dy.scalar_type()));
  if (in.activation == Activation::none) return dy;
  const at::NoGradGuard constant;
  kernels::Incoming ones = in;
  ones.dy = at::ones_like(in.x);
  const at::Tensor one = at::ones_like(in.mean), none = at::zeros_like(in.mean);
  const at::Tensor passes = in.y.defined() ? ones.g() : ones.input_gradient(in.mean, one, none, none);
  const at::AutoGradMode on(true);
  return dy * passes;
}

void refuse_second_derivative(const std::string& strategy, const std::string& site) {
  throw Error(Error::Kind::refused, strategy + (site.empty() ? "" : " (site " + site + ")") +
                                        ": its backward pass cannot be differentiated again (create_graph, "
                                        "as gradient penalties want it); per_tower's and sync's can");
}

at::Tensor slice_sums(const at::Tensor& x, const kernels::Offsets& offsets) {
  std::vector<at::Tensor> sums;
  for (size_t s = 0; s + 1 < offsets.size(); ++s)
    sums.push_back(x.narrow(0, offsets[s], offsets[s + 1] - offsets[s]).sum(all_but_channels(x.dim())));
  return at::stack(sums);
}

at::Tensor at_rows(const at::Tensor& values, const kernels::Offsets& offsets, int64_t dims) {
  std::vector<at::Tensor> rows;
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const at::Tensor row = values.narrow(0, values.size(0) == 1 ? 0 : static_cast<int64_t>(s), 1);
    rows.push_back(row.expand({offsets[s + 1] - offsets[s], -1}));
  }
  std::vector<int64_t> shape(static_cast<size_t>(dims), 1);
  shape[0] = offsets.back();
  shape[1] = values.size(1);
  return at::cat(rows).view(shape);
}

at::Tensor per_channel(const at::Tensor& values, int64_t dims) {
  std::vector<int64_t> shape(static_cast<size_t>(dims), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

at::Tensor sum_over_ranks(const at::Tensor& x, Communicator& communicator, const std::string& site) {
  return SumOverRanks::apply(x, &communicator, site);
}

at::Tensor sum_over_groups(const at::Tensor& parts, const Towers& towers, int64_t group,
                           Communicator& communicator, const std::string& site) {
  const int64_t first = towers.first();
  const at::Tensor index =
      at::arange(first, first + parts.size(0), parts.options().dtype(at::kLong)).div(group, "floor");
  const at::Tensor here = at::zeros({towers.count() / group, parts.size(1)}, parts.options());
  return sum_over_ranks(here.index_add(0, index, parts), communicator, site).index_select(0, index);
}

}  // namespace bnlab
