#include "strategies/reference/reference.hpp"

#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "harness/support/error.hpp"

namespace bnlab::reference {

at::Tensor per_channel(const at::Tensor& v, int64_t dims) {
  std::vector<int64_t> shape(static_cast<size_t>(dims), 1);
  shape[1] = v.size(0);
  return v.view(shape);
}

int64_t elements(const at::Tensor& x) {
  int64_t count = 1;
  for (int64_t d = 0; d < x.dim(); ++d) count *= d == 1 ? 1 : x.size(d);
  return count;
}

Moments moments(const Tensors& parts) {
  Tensors rows;  // [elements, C]
  for (const at::Tensor& part : parts)
    if (part.numel() > 0) rows.push_back(part.movedim(1, -1).reshape({-1, part.size(1)}));
  if (rows.empty()) return {};
  const at::Tensor all = at::cat(rows);
  const at::Tensor mean = all.mean(0);
  return {all.size(0), mean, (all - mean).square().mean(0)};
}

at::Tensor standardise(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& var, double eps) {
  return (x - per_channel(mean, x.dim())) / per_channel((var + eps).sqrt(), x.dim());
}

void refuse(const std::string& message) {
  throw Error(Error::Kind::refused, message);
}

namespace {

at::Tensor where_finite(const Pair& pair) {
  return pair.mean.isfinite() & pair.var.isfinite();
}

Pair moved(const Pair& from, const Pair& to, double weight) {
  return {(1 - weight) * from.mean + weight * to.mean.detach(),
          (1 - weight) * from.var + weight * to.var.detach()};
}

// Channel by channel.
Pair chosen(const at::Tensor& condition, const Pair& yes, const Pair& no) {
  return {at::where(condition, yes.mean, no.mean), at::where(condition, yes.var, no.var)};
}

// Each sample by the saved pair and its own moments, which weigh `own_share` in what both are the moments of.
Tensors evaluate_mixed(Site& site, const Tensors& x, double own_share) {
  Tensors y;
  for (const at::Tensor& tower : x) {
    Tensors samples;
    for (const at::Tensor& sample : tower.split(1)) {
      const Pair saved = site.saved();
      Pair mixed = saved;
      if (saved.mean.defined() && sample.size(0) > 0) {
        const Moments own = site.own_moments(sample);
        const auto mix = [&](const at::Tensor& a, const at::Tensor& b) {
          return own_share * a + (1 - own_share) * b;
        };
        const at::Tensor mean = mix(own.mean, saved.mean);
        const at::Tensor square = mix(own.var + own.mean.square(), saved.var + saved.mean.square());
        mixed = {mean.detach(), (square - mean.square()).detach()};
      }
      samples.push_back(site.evaluate({sample}, mixed)[0]);
    }
    y.push_back(at::cat(samples));
  }
  return y;
}

}  // namespace

bool remembers_biased(const Json& options) {
  return options.value("running_variance", "unbiased") == "biased";
}

RunningPair::RunningPair(const Pair& start, const Json& momentum, at::ScalarType held, bool biased,
                         bool zero_debias)
    : pair_(start),
      start_(start),
      momentum_(momentum.is_null() ? std::nullopt : std::optional<double>(momentum.get<double>())),
      held_(held),
      biased_(biased),
      zero_debias_(zero_debias) {}

double RunningPair::next_weight() {
  if (!momentum_) return 1.0 / static_cast<double>(++updates_);
  if (!zero_debias_) return *momentum_;
  weighs_ = (1 - *momentum_) * weighs_ + *momentum_;
  return *momentum_ / weighs_;
}

Pair RunningPair::written(const Moments& set) const {
  const auto n = static_cast<double>(set.count);
  const at::Tensor var = biased_ ? set.var : set.var * (n / (n - 1));
  const at::Tensor finite = set.mean.to(held_).isfinite() & var.to(held_).isfinite();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  return {at::where(finite, set.mean, kNan), at::where(finite, var, kNan)};
}

void RunningPair::remember(const std::vector<Pair>& updates) {
  Pair after = pair_;
  for (const Pair& update : updates) after = moved(after, update, next_weight());
  pair_ = chosen(where_finite(after), after, pair_);
}

void RunningPair::remember(const std::vector<OfTower>& sets, bool in_turn) {
  if (sets.empty()) return;
  std::vector<Pair> stood_in;
  std::map<size_t, std::vector<Pair>> by_tower;
  for (const OfTower& set : sets) {
    const Pair& own = of_towers_.try_emplace(set.tower, start_).first->second;
    stood_in.push_back(chosen(where_finite(set.written), set.written, own));
    by_tower[set.tower].push_back(set.written);
  }
  double kept = 1;  // what the step leaves of the pair
  for (const Pair& update : in_turn ? stood_in : mean_of(stood_in)) {
    const double a = next_weight();
    pair_ = moved(pair_, update, a);
    kept *= 1 - a;
  }
  for (const auto& [tower, all] : by_tower) {
    Pair sum{at::zeros_like(pair_.mean), at::zeros_like(pair_.var)};
    at::Tensor count = at::zeros_like(pair_.mean);
    for (const Pair& pair : all) {
      const at::Tensor is_finite = where_finite(pair);
      sum.mean = sum.mean + at::where(is_finite, pair.mean.detach(), at::zeros_like(sum.mean));
      sum.var = sum.var + at::where(is_finite, pair.var.detach(), at::zeros_like(sum.var));
      count = count + is_finite.to(at::kDouble);
    }
    Pair& own = of_towers_.at(tower);
    own = chosen(count > 0, moved(own, {sum.mean / count, sum.var / count}, 1 - kept), own);
  }
}

const NamedTensors& Site::parameters() const {
  static const NamedTensors none;
  return none;
}

at::Tensor Site::activated(const at::Tensor& y, Activation activation) const {
  return activation == Activation::relu ? y.relu() : y;
}

at::Tensor Start::parameter(const std::string& name, const at::Tensor& otherwise) const {
  const auto given = parameters.find(name);
  return leaf(given == parameters.end() ? otherwise : given->second, held);
}

void PassesOfStep::add(const Tensors& x) {
  if (passes_.size() == per_step_) passes_.clear();
  passes_.emplace_back();
  for (const at::Tensor& tower : x) passes_.back().push_back(tower.detach());
}

std::vector<Tensors> PassesOfStep::remembered() const {
  if (!remembered_once_) return {passes_.back()};
  return passes_.size() == per_step_ ? passes_ : std::vector<Tensors>();
}

Tensors joined(const std::vector<Tensors>& passes) {
  Tensors towers;
  for (size_t t = 0; t < passes.front().size(); ++t) {
    Tensors parts;
    for (const Tensors& pass : passes) parts.push_back(pass[t]);
    towers.push_back(at::cat(parts));
  }
  return towers;
}

std::vector<Pair> mean_of(const std::vector<Pair>& pairs) {
  if (pairs.empty()) return {};
  Tensors means, vars;
  for (const Pair& pair : pairs) {
    means.push_back(pair.mean);
    vars.push_back(pair.var);
  }
  return {{at::stack(means).mean(0), at::stack(vars).mean(0)}};
}

at::Tensor leaf(const at::Tensor& given, at::ScalarType precision) {
  return given.detach().to(at::kCPU, precision).to(at::kDouble, false, /*copy=*/true).requires_grad_(true);
}

Tensors leaves(const Tensors& given, at::ScalarType precision) {
  Tensors all;
  for (const at::Tensor& t : given) all.push_back(t.defined() ? leaf(t, precision) : at::Tensor());
  return all;
}

Tensors gradients(const Tensors& y, const Tensors& dy, const Tensors& leaves) {
  if (dy.empty()) return Tensors(leaves.size());
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (size_t t = 0; t < y.size(); ++t)
    loss = loss + (y[t] * (dy[t].defined() ? dy[t] : at::zeros_like(y[t]))).sum();
  Tensors found(leaves.size());
  if (loss.requires_grad())
    found = torch::autograd::grad({loss}, leaves, {}, std::nullopt, false, /*allow_unused=*/true);
  for (size_t i = 0; i < leaves.size(); ++i)
    found[i] = found[i].defined() ? found[i] : at::zeros_like(leaves[i]);
  return found;
}

About about(const std::string& strategy) {
  return {.name = strategy, .summary = "what " + strategy + " must answer, in float64"};
}

LayerAnswer SiteReference::answer(const LayerCase& c) const {
  const at::ScalarType held = statistics_type(c.dtype);
  const int64_t channels = c.steps.front().inputs.front().size(1);
  const auto given = [&](const at::Tensor& t, double otherwise) {
    return leaf(t.defined() ? t : at::full({channels}, otherwise, at::kDouble), held);
  };
  const at::Tensor weight = given(c.weight, 1), bias = given(c.bias, 0);
  const auto site =
      make_site_(c.strategy, {c.strategy.at("name").get<std::string>(),
                              c.towers(),
                              channels,
                              c.seed,
                              held,
                              {given(c.running_mean, 0).detach(), given(c.running_var, 1).detach()},
                              c.parameters,
                              c.activation,
                              static_cast<size_t>(c.accumulate),
                              c.statistics_per_step});
  LayerAnswer answer;
  for (const LayerStep& step : c.steps) {
    LayerStepAnswer out;
    Tensors all = leaves(step.inputs, c.dtype);
    Tensors y = step.mode == Mode::train            ? site->train(all)
                : step.own_share > 0                ? evaluate_mixed(*site, all, step.own_share)
                : step.mode == Mode::evaluate_saved ? site->evaluate(all, site->saved())
                                                    : site->evaluate_batch(all);
    for (at::Tensor& tower : y) {
      if (site->affine()) tower = tower * per_channel(weight, tower.dim()) + per_channel(bias, tower.dim());
      tower = site->activated(tower, c.activation);
      out.outputs.push_back(tower.detach());
    }
    for (const auto& [name, parameter] : site->parameters()) all.push_back(parameter);
    if (site->affine()) {
      all.push_back(weight);
      all.push_back(bias);
    }
    Tensors found = gradients(y, leaves(step.gradients, c.dtype), all);
    if (site->affine()) {
      out.bias_gradient = found.back();
      out.weight_gradient = found[found.size() - 2];
    }
    size_t place = step.inputs.size();
    for (const auto& [name, parameter] : site->parameters()) out.parameter_gradients[name] = found[place++];
    found.resize(step.inputs.size());
    if (!step.gradients.empty()) out.input_gradients = found;
    if (step.merges) {
      out.running_mean = site->saved().mean;
      out.running_var = site->saved().var;
    }
    if (step.mode == Mode::train) out.permutation = site->permutation();
    answer.steps.push_back(out);
  }
  return answer;
}

}  // namespace bnlab::reference
