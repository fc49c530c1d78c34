// What a strategy of the BN family computes at a site, by its Rules, with s = 1 / sqrt(v + eps) over the set
// (a tower, a group of towers, a virtual batch):
//
//   forward    local moments -> exchange, where they are pooled -> coefficients ->
//              y = gamma ((x - m) s r + d) + beta, r = 1 and d = 0 but for batch renormalisation;
//              the running statistics are updated on the way. Where a step has several passes
//              (micro-batches), those before may have a part in the moments, as constants
//              (over_micro_batches), and the update may wait for the last (statistics_per_step)
//   backward   local sums of g and g (x - m) -> exchange, where they are pooled -> coefficients ->
//              dx = gamma r s (g - A/N - (x - m) s^2 B/N), A = sum g, B = sum g (x - m) over the set
//
// LibTorch enters by apply_norm (norm_function.hpp), an autograd operation that calls forward and backward of
// the BatchPass below. The sweeps over the activations and the steps to coefficients are operations of
// kernels/; where nothing is exchanged between a sweep and its coefficients, they are one
// (kernels/coefficients.hpp). On a GPU most sites take two kernels forward and two backward, or three and
// three beside their exchanges; `bnlab explain` counts them.
#include "strategies/engine/bn_layer.hpp"

#include <torch/types.h>

#include <algorithm>
#include <optional>

#include "harness/error.hpp"
#include "strategies/engine/exchange/route.hpp"
#include "strategies/engine/moments.hpp"
#include "strategies/engine/norm_function.hpp"
#include "strategies/engine/running_pass.hpp"
#include "strategies/kernels/coefficients.hpp"

namespace bnlab {
namespace {

// Normalises by the moments of the batch.
class BatchPass : public NormPass {
 public:
  BatchPass(const std::string& site, std::shared_ptr<const Rules> rules, const Pass& pass, int64_t positions,
            Sets sets, at::ScalarType precision, const Strategy::Context& context,
            std::shared_ptr<SiteStatistics> statistics)
      : NormPass(sets.offsets),
        site_(site),
        rules_(std::move(rules)),
        pass_(pass),
        positions_(positions),
        sets_(std::move(sets)),
        precision_(precision),
        statistics_(std::move(statistics)),
        ranks_(context.statistics) {
    if (rules_->pools()) {
      route_ = route_taken(rules_->route, context.statistics.size())
                   .make({.towers = pass_.towers,
                          .rows_per_sample = pass_.rows_per_sample,
                          .elements = sets_.towers,
                          .group = rules_->group(pass_.towers),
                          .merge = rules_->merge,
                          .precision = precision_,
                          .communicator = context.statistics,
                          .host = context.host});
    }
  }

  kernels::Coefficients forward(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias) override {
    const kernels::NormOptions given = options(weight, bias);
    if (takes_earlier_passes()) {
      const at::Tensor local = kept(kernels::moments(x, offsets()));
      PassesOfStep& passes = statistics_->passes(pass_.mode);
      const at::Tensor rows = passes.rows();
      const kernels::PooledRows so_far{.rows = rows,
                                       .layout = kernels::PooledLayout::passes,
                                       .group = rows.size(0) / local.size(0),
                                       .sets = local.size(0)};
      forward_ = kernels::pooled_forward(so_far, rules_->merge, given, precision_, begin_update());
      const bool as_normalised =
          pass_.mode == Mode::train && !remembers_per_step() && statistics_->needs_local_moments();
      remember(as_normalised ? passes.merged() : local);
    } else if (!route_) {
      const auto [local, coefficients] = kernels::local_forward(x, offsets(), given, begin_update());
      forward_ = coefficients;
      remember(kept(local));
    } else {
      const at::Tensor local = kept(kernels::moments(x, offsets()));  // [G, 1 + 2C]
      const kernels::PooledRows pooled = at_site(site_, "forward", [&] { return route_->moments(local, x); });
      forward_ = kernels::pooled_forward(pooled, rules_->merge, given, precision_, begin_update());
      if (rules_->merge == Merge::averaged) local_mean_ = Moments(local).mean.to(precision_);
      remember(local, &pooled);
    }
    if (pass_.mode == Mode::train && pass_.later == nullptr && pass_.micro_batch.is_last())
      statistics_->end_step();
    return forward_;
  }

  kernels::BackwardCoefficients backward(const kernels::Incoming& incoming,
                                         const at::Tensor& weight) override {
    if (rules_->gradient != Gradient::full || !route_) {
      const bool through_moments = rules_->gradient != Gradient::stopped;
      return about_local_mean(
          kernels::local_backward(incoming, forward_, through_moments, rules_->mean_only, weight));
    }
    const at::Tensor local = incoming.sums(forward_.mean);  // [G, 2, C]
    const kernels::PooledRows pooled =
        at_site(site_, "backward", [&] { return route_->sums(local, incoming); });
    return about_local_mean(kernels::pooled_backward(forward_, local, pooled, rules_->mean_only, weight));
  }

  NormFormula formula(const at::Tensor& x) const override {
    if (rules_->renorm || takes_earlier_passes()) refuse_second_derivative(rules_->strategy, site_);
    const Gradient gradient = rules_->gradient;
    // Of t over this rank's sets, divided by what shares their moments; and the mean over all that shares
    // them, of which a constant is what the gradient does not pass through.
    const auto part = [this](const at::Tensor& t) { return slice_sums(t, offsets()) / forward_.count; };
    const auto mean = [this, part, gradient](const at::Tensor& t) {  // [G, C]
      const at::Tensor own = part(t);
      return gradient == Gradient::full      ? pooled(own)
             : gradient == Gradient::stopped ? pooled(own.detach())
                                             : pooled(own.detach()) + own - own.detach();
    };
    const auto rows = [this, dims = x.dim()](const at::Tensor& t) { return at_rows(t, offsets(), dims); };
    NormFormula formula;
    if (gradient != Gradient::stopped) {
      formula.mean = [=](const at::Tensor& t) {
        return rows(gradient == Gradient::full ? mean(t) : part(t));
      };
    }
    const at::Tensor m = mean(x);
    formula.normalised = x - rows(m);
    if (rules_->mean_only) return formula;
    at::Tensor own, var;
    if (rules_->merge == Merge::averaged) {
      own = x - rows(slice_sums(x, offsets()) / slice_sums(at::ones_like(x), offsets()).clamp_min(1));
      var = mean(own.square());
    } else {  // about any constant, of which the mean itself loses no digits
      const at::Tensor about = rules_->merge == Merge::e_x2 ? at::zeros_like(m) : forward_.mean;
      var = mean((x - rows(about)).square()) - (m - about).square();
    }
    formula.scale = rows((var + rules_->eps).rsqrt());
    formula.normalised = formula.normalised * formula.scale;
    formula.about_own = own.defined() ? own * formula.scale : own;
    return formula;
  }

  bool needs_outputs() const override {
    return local_mean_.defined() || (route_ && about_route(rules_->route).moves_rows);
  }

 private:
  // [G, C], of this rank's sets, summed over those that share their moments.
  at::Tensor pooled(const at::Tensor& parts) const {
    if (!route_) return parts;
    const int64_t group = rules_->group(pass_.towers), first = pass_.towers.first();
    const at::Tensor towers = at::arange(first, first + parts.size(0), parts.options().dtype(at::kLong));
    const at::Tensor index = towers.div(group, "floor");
    const at::Tensor here = at::zeros({pass_.towers.count() / group, parts.size(1)}, parts.options());
    return sum_over_ranks(here.index_add(0, index, parts), ranks_, site_).index_select(0, index);
  }

  // Passes of the step's other micro-batches, before this one, that normalise with it.
  bool takes_earlier_passes() const {
    return rules_->over_micro_batches && pass_.mode != Mode::evaluate_batch && !pass_.micro_batch.is_first();
  }

  // Whether the moments of all passes of the step make one update of the running statistics.
  bool remembers_per_step() const {
    return pass_.mode == Mode::train && pass_.micro_batch.statistics_per_step && pass_.micro_batch.count > 1;
  }

  // Keeps the moments of this rank's sets for the passes of the step that follow.
  at::Tensor kept(const at::Tensor& local) {
    const bool follow = rules_->over_micro_batches && pass_.mode != Mode::evaluate_batch;
    if (follow || remembers_per_step()) statistics_->passes(pass_.mode).add(local, pass_.micro_batch);
    return local;
  }

  // An update by this pass alone.
  std::optional<kernels::RunningUpdate> begin_update() {
    const bool now = pass_.mode == Mode::train && pass_.later == nullptr && !remembers_per_step();
    return now ? statistics_->begin_update(sets_, pass_.towers, rules_->momentum) : std::nullopt;
  }

  // pooled: what the ranks' moments became, where they are pooled.
  void remember(const at::Tensor& local, const kernels::PooledRows* pooled = nullptr) {
    if (pass_.mode == Mode::calibrate)
      statistics_->collect(local);
    else if (pass_.mode == Mode::train && pass_.later != nullptr)
      pass_.later->push_back(update_by(local));
    else if (remembers_per_step())
      at_site(site_, "forward", [&] { remember_step(pooled); });
    else if (pass_.mode == Mode::train)
      at_site(site_, "forward", [&] { statistics_->remember(local, sets_, pass_.towers); });
  }

  // The whole step of the running statistics, for when the sizes of all towers are known. Such a step has one
  // pass.
  StatisticsUpdate update_by(const at::Tensor& local) const {
    return [=, pass = pass_, rules = rules_, statistics = statistics_,
            positions = positions_](const Towers& all) {
      Pass complete = pass;
      complete.towers = all;
      const Sets sets = sets_of(complete, positions, rules->virtual_batch);
      if (const auto step = statistics->begin_update(sets, all, rules->momentum))
        kernels::update_running(*step, local);
      statistics->remember(local, sets, all);
      statistics->end_step();
    };
  }

  // In the last pass of a step. The virtual batches of all passes are remembered apart, as those of one pass
  // are; the moments of a tower, or of pooled towers, are merged over the passes.
  void remember_step(const kernels::PooledRows* pooled) {
    const MicroBatch& micro_batch = pass_.micro_batch;
    PassesOfStep& pooled_passes = statistics_->pooled_passes();
    if (pooled != nullptr) pooled_passes.add(pooled->rows, micro_batch);
    if (!micro_batch.is_last()) return;
    const bool apart = rules_->virtual_batch > 0;
    const Sets sets = apart ? repeated(sets_, micro_batch.count) : sets_;
    const at::Tensor rows = apart ? statistics_->passes().rows() : statistics_->passes().merged();
    if (const auto update = statistics_->begin_update(sets, pass_.towers, rules_->momentum)) {
      if (pooled == nullptr) {
        kernels::update_running(*update, rows);
      } else {
        kernels::PooledRows step = *pooled;
        step.rows = pooled->layout == kernels::PooledLayout::group_sums
                        ? pooled_passes.sum()
                        : pooled_passes.merged(rules_->merge, precision_);
        kernels::pooled_forward(step, rules_->merge, {.eps = rules_->eps}, precision_, update);
      }
    }
    statistics_->remember(rows, sets, pass_.towers);
  }

  // With Merge::averaged the exact derivative of the forward pass is about each tower's own mean.
  kernels::BackwardCoefficients about_local_mean(kernels::BackwardCoefficients k) const {
    if (local_mean_.defined()) k.mean = local_mean_;
    return k;
  }

  kernels::NormOptions options(const at::Tensor& weight, const at::Tensor& bias) const {
    return {.eps = rules_->eps,
            .mean_only = rules_->mean_only,
            .weight = weight,
            .bias = bias,
            .renorm = renorm()};
  }

  // By the running statistics before this step's update. The batch's own moments normalise an evaluation
  // alone.
  std::optional<kernels::Renormalisation> renorm() const {
    if (!rules_->renorm || pass_.mode == Mode::evaluate_batch) return std::nullopt;
    const LimitSchedule::Limits limits = rules_->renorm->limits(pass_.step.index);
    return kernels::Renormalisation{
        .running = statistics_->saved().merged(), .r_max = limits.r, .d_max = limits.d};
  }

  std::string site_;
  std::shared_ptr<const Rules> rules_;
  Pass pass_;
  int64_t positions_;  // elements per row and channel
  Sets sets_;
  at::ScalarType precision_;  // of the statistics
  std::shared_ptr<SiteStatistics> statistics_;
  Communicator& ranks_;
  std::unique_ptr<Route> route_;  // where moments are pooled
  at::Tensor local_mean_;         // [G, C], with Merge::averaged
};

void check_sizes(const std::string& site, const Rules& rules, const Pass& pass, const Sets& sets) {
  const auto elements =
      rules.pools() ? sums_of_groups(sets.elements, rules.group(pass.towers)) : sets.elements;
  if (std::find(elements.begin(), elements.end(), 1) != elements.end()) {
    throw Error(Error::Kind::refused, "more than 1 value per channel is needed to normalise (site " + site +
                                          ", strategy " + rules.strategy + ", set of 1)");
  }
}

// Of strategies whose rules were made for the sizes of the run's training batches.
void check_samples(const std::string& site, const Rules& rules, const Pass& pass) {
  if (rules.samples_per_set == 0 || pass.mode != Mode::train) return;
  const int64_t expected = rules.samples_per_set;
  for (const int64_t samples :
       sums_of_groups(pass.towers.all_samples(), rules.pools() ? rules.group(pass.towers) : 1)) {
    if (rules.pools() ? samples != expected : samples % expected != 0) {
      throw Error(Error::Kind::refused,
                  rules.strategy + ": expected " + std::to_string(expected) +
                      " samples in every set, as in the batches that the layer was made for, but a " +
                      (rules.pools() ? "group of towers" : "tower") + " has " + std::to_string(samples) +
                      " (site " + site + ")");
    }
  }
}

void check_schedule(const Rules& rules, const Pass& pass) {
  if (pass.mode == Mode::train && rules.renorm && rules.renorm->lacks_length) {
    throw Error(
        Error::Kind::refused,
        rules.strategy +
            ": schedule: the limits rise from 10 % to 50 % of a run, whose length is not known here; give "
            "start_step and end_step, or null for full limits at once, or the number of steps of the run");
  }
}

}  // namespace

BnLayer::BnLayer(const NormSite& site, std::shared_ptr<const Rules> rules, const Strategy::Context& context)
    : site_(site), rules_(std::move(rules)), context_(context) {
  const auto options = at::TensorOptions().device(context.device).dtype(statistics_type(context.dtype));
  if (rules_->affine && !rules_->mean_only) {
    register_parameter("weight", at::ones({site.channels}, options));
    register_parameter("bias", at::zeros({site.channels}, options));
  }
  const at::Tensor mean = register_buffer("running_mean", at::zeros({site.channels}, options));
  const at::Tensor var =
      rules_->mean_only ? at::Tensor() : register_buffer("running_var", at::ones({site.channels}, options));
  statistics_ = std::make_shared<SiteStatistics>(rules_, context, mean, var);
}

at::Tensor BnLayer::forward(at::Tensor x, at::Tensor residual, const Pass& pass) {
  const bool as_training = pass.mode == Mode::train || pass.mode == Mode::calibrate;
  if (!as_training && pass.mode != Mode::evaluate_batch) {
    return apply_norm(x, residual, parameter("weight"), parameter("bias"), site_.activation,
                      running_pass(x, pass, rules_, statistics_), pass);
  }
  check_schedule(*rules_, pass);
  check_samples(site_.name, *rules_, pass);
  Sets sets = sets_of(pass, positions(x), rules_->virtual_batch);
  if (as_training) check_sizes(site_.name, *rules_, pass, sets);
  return apply_norm(x, residual, parameter("weight"), parameter("bias"), site_.activation,
                    c10::make_intrusive<BatchPass>(site_.name, rules_, pass, positions(x), std::move(sets),
                                                   statistics_type(x.scalar_type()), context_, statistics_),
                    pass);
}

// The registry of a module's buffers cannot be written: they are where the statistics have them.
void BnLayer::replace(const std::string& name, const at::Tensor& tensor) {
  if (name == "running_mean")
    statistics_->set_buffers(tensor, statistics_->var());
  else if (name == "running_var")
    statistics_->set_buffers(statistics_->mean(), tensor);
  else
    WritableLayer::replace(name, tensor);
}

// Passes that are under way keep the rules that they began with.
void BnLayer::set_eps(double eps) {
  Rules rules = *rules_;
  rules.eps = eps;
  rules_ = std::make_shared<const Rules>(std::move(rules));
}

void BnLayer::set_momentum(std::optional<double> momentum) {
  Rules rules = *rules_;
  rules.momentum = momentum;
  rules_ = std::make_shared<const Rules>(std::move(rules));
}

}  // namespace bnlab
