#include "harness/embed/embedded_site.hpp"

#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "harness/communicator/world.hpp"
#include "harness/components/registry.hpp"
#include "harness/layer/tensor_json.hpp"
#include "harness/one_site.hpp"
#include "harness/support/error.hpp"
#include "harness/writable_layer.hpp"

namespace bnlab {
namespace {

constexpr const char* kCount = "num_batches_tracked";

// Whatever has parameters, eps or momentum is one.
WritableLayer& writable(Layer& layer) {
  return dynamic_cast<WritableLayer&>(layer);
}

[[noreturn]] void refuse(const BatchNormOptions& options, const Json& strategy, const std::string& message) {
  throw Error(Error::Kind::refused, "layer " + options.name() + " (strategy " +
                                        strategy.at("name").get<std::string>() + "): " + message);
}

}  // namespace

EmbeddedSite::EmbeddedSite(const BatchNormOptions& options) {
  take(made(options));
  seen_.note(buffers_);
}

EmbeddedSite::Made EmbeddedSite::made(const BatchNormOptions& options) {
  Made made;
  made.strategy_json = strategy_of(options);  // which checks what completed() reads
  made.options = completed(options);
  if (options.num_features() < 1 || options.towers_per_rank() < 1) {
    bnlab::refuse(options, made.strategy_json,
                  "expected at least 1 feature and 1 tower, got " + std::to_string(options.num_features()) +
                      " and " + std::to_string(options.towers_per_rank()));
  }
  World& world = options.ranks().world();
  const auto towers = static_cast<size_t>(options.towers_per_rank() * world.size());
  made.strategy = Registered<Strategy>::create(made.strategy_json,
                                               {.statistics = world.statistics(),
                                                .host = world.host(),
                                                .seed = options.seed(),
                                                .steps = options.total_steps(),
                                                .samples_per_tower = std::vector<int64_t>(towers, 0)});
  if (const std::string why = made.strategy->why_not_alone(); !why.empty())
    bnlab::refuse(options, made.strategy_json, why);
  made.layer = made.strategy->norm(
      {options.name(), options.num_features(), options.relu() ? Activation::relu : Activation::none});
  for (const auto& parameter : made.layer->named_parameters())
    made.parameters.emplace_back(parameter.key(), parameter.value());
  if (made.strategy->running_statistics() != nullptr && made.options.track_running_stats()) {
    for (const auto& buffer : made.layer->named_buffers())
      made.buffers.emplace_back(buffer.key(), buffer.value());
    made.buffers.emplace_back(kCount, at::zeros({}, at::kLong));
  }
  for (const Named* tensors : {&made.parameters, &made.buffers})
    for (const auto& [name, tensor] : *tensors) made.sizes.push_back(tensor.numel());
  return made;
}

void EmbeddedSite::take(Made made) {
  options_ = std::move(made.options);
  strategy_json_ = std::move(made.strategy_json);
  layer_ = std::move(made.layer);
  strategy_ = std::move(made.strategy);
  parameters_ = std::move(made.parameters);
  buffers_ = std::move(made.buffers);
  sizes_ = std::move(made.sizes);
}

void EmbeddedSite::replace(const std::string& name, const at::Tensor& tensor) {
  Named& all = name == "weight" || name == "bias" ? parameters_ : buffers_;
  const auto mine = std::ranges::find(all, name, &Named::value_type::first);
  if (mine == all.end()) {
    refuse("it has no " + name +
           (&all == &parameters_ ? " (affine false)" : " (it keeps no running statistics)"));
  }
  if (!tensor.defined() || tensor.sizes() != mine->second.sizes()) {
    refuse(name + ": expected a tensor of " + shape_text(mine->second.sizes()) + ", got " +
           (tensor.defined() ? shape_text(tensor.sizes()) : "an undefined one"));
  }
  mine->second = tensor;
  std::erase(frozen_, name);
  if (name != kCount) writable(*layer_).replace(name, tensor);
}

void EmbeddedSite::follow(BatchNormOptions& written) {
  const bool others_are_same = make_the_same(written, options_);
  if (others_are_same && pass_the_same(written, options_)) return;
  if (written.track_running_stats() && has_running_statistics() && !keeps_statistics())
    refuse("track_running_stats: it was made without running statistics; set_options makes them");
  BatchNormOptions now = told(written);
  if (others_are_same) {
    strategy_json_ = strategy_of(now);
    options_ = std::move(now);
    if (const Json* at = that_has(strategy_json_, "eps")) writable(*layer_).set_eps(at->at("eps"));
    if (const Json* at = that_has(strategy_json_, "momentum"))
      writable(*layer_).set_momentum(momentum_of(at->at("momentum")));
  } else {
    set_options(now, /*may_change_tensors=*/false);
  }
  written = options_;
}

std::vector<at::Tensor> EmbeddedSite::set_options(const BatchNormOptions& options, bool may_change_tensors) {
  if (options.num_features() != options_.num_features()) {
    refuse("num_features: its tensors have " + std::to_string(options_.num_features()) + ", got " +
           std::to_string(options.num_features()));
  }
  if (options_.ranks().size() > 1 && (apart_ || options_.ranks().meeting().has_waiting()))
    refuse("options: the ranks hold running statistics apart; call merge() on every rank first");
  const at::NoGradGuard no_grad;
  Made next = made(options);
  const at::Tensor like = !parameters_.empty() ? parameters_.front().second : buffer("running_mean");
  bool same = next.parameters.size() == parameters_.size() && next.buffers.size() == buffers_.size();
  const auto keep = [&](const Named& mine, Named& of_next) {
    std::vector<at::Tensor> added;
    for (auto& [name, tensor] : of_next) {
      if (const at::Tensor before = named(mine, name); before.defined()) {
        tensor = before;
        if (name != kCount) writable(*next.layer).replace(name, before);
      } else {
        same = false;
        added.push_back(tensor);
        if (like.defined())
          tensor.set_data(tensor.to(like.device(), name == kCount ? at::kLong : like.scalar_type()));
      }
    }
    return added;
  };
  std::vector<at::Tensor> added = keep(parameters_, next.parameters);
  keep(buffers_, next.buffers);
  if (!same && !may_change_tensors)
    refuse("options: what was written would give it other tensors; set_options does that");
  for (const std::string& name : std::exchange(frozen_, {}))
    parameter(name).requires_grad_(true);  // until the strategy freezes it, too
  take(std::move(next));
  samples_that_fit_.clear();
  if (keeps_statistics()) adopt();
  return added;
}

at::Tensor EmbeddedSite::named(const Named& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &Named::value_type::first);
  return found == tensors.end() ? at::Tensor() : found->second;
}

at::Tensor EmbeddedSite::forward(bool training, const at::Tensor& x, const at::Tensor& residual) {
  check(x, residual);
  if ((training || calibrating_) && seen_.differ_from(buffers_)) adopt();
  if (calibrating_) return pass(x, residual, Mode::calibrate);
  const bool has_statistics = strategy_->running_statistics() != nullptr;
  if (!training && has_statistics && !options_.track_running_stats()) {
    refuse_lone(x.size(0) * positions_of(x));
    // The batch at hand, of this rank alone: evaluation exchanges nothing.
    at::Tensor y = at::batch_norm(x, parameter("weight"), parameter("bias"), {}, {}, /*training=*/true, 0,
                                  options_.eps(), /*cudnn_enabled=*/false);
    y = residual.defined() ? y + residual : y;
    return options_.relu() ? y.relu() : y;
  }
  if (!training) return apply(x, residual, towers(as_everywhere(x)), Mode::evaluate_saved);
  const bool trains = !has_statistics || counts();
  if (trains && std::exchange(recomputed_, false) && strategy_->work(step()).frozen) {
    strategy_->running_statistics()->restore();  // what it trains with
    seen_.note(buffers_);
  }
  if (trains) freeze_parameters();
  at::Tensor y = pass(x, residual, trains ? Mode::train : Mode::evaluate_batch);
  // Without a gradient of its own the pass would not hear of the backward pass.
  if (options_.counting() == Counting::first_before_backward && keeps_statistics() &&
      at::GradMode::is_enabled() && !y.requires_grad()) {
    y = y + at::zeros({}, y.options()).requires_grad_();
  }
  if (options_.counting() == Counting::first_before_backward && y.requires_grad()) {
    *counted_ = *counted_ || trains;
    // Of every pass: the output of the one that counted may be dropped, and never see a backward pass.
    y.register_hook([counted = counted_](const at::Tensor&) { *counted = false; });
  }
  return y;
}

void EmbeddedSite::check(const at::Tensor& x, const at::Tensor& residual) const {
  if (!x.defined()) refuse("expected an input, got an undefined tensor");
  if (x.dim() < 2 || x.dim() > 5 || x.size(1) != options_.num_features()) {
    refuse("expected an input [rows, " + std::to_string(options_.num_features()) +
           ", ...] of 2 to 5 dimensions, got " + shape_text(x.sizes()));
  }
  const at::ScalarType type = statistics_type(x.scalar_type());
  auto size = sizes_.begin();
  for (const Named* tensors : {&parameters_, &buffers_}) {
    for (const auto& [name, tensor] : *tensors) {
      if (name != kCount && (tensor.dim() != 1 || tensor.size(0) != *size || tensor.scalar_type() != type ||
                             tensor.device() != x.device())) {
        refuse(name + ": expected " + at::toString(type) + " " + shape_text({*size}) + " on " +
               x.device().str() + " beside this input, got " + at::toString(tensor.scalar_type()) + " " +
               shape_text(tensor.sizes()) + " on " + tensor.device().str());
      }
      ++size;
    }
  }
  if (residual.defined() && residual.sizes() != x.sizes()) {
    refuse("expected a residual like the input, " + shape_text(x.sizes()) + ", got " +
           shape_text(residual.sizes()));
  }
}

void EmbeddedSite::refuse_lone(int64_t values) const {
  if (values == 1) refuse("more than 1 value per channel is needed to normalise");
}

bool EmbeddedSite::counts() const {
  if (!options_.track_running_stats()) return false;
  return options_.counting() == Counting::every_forward || (at::GradMode::is_enabled() && !*counted_);
}

at::Tensor EmbeddedSite::pass(const at::Tensor& x, const at::Tensor& residual, Mode mode) {
  try {
    return pass_among_ranks(x, residual, mode);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::communication) throw;
    throw Error(error.kind(), "rank " + std::to_string(options_.ranks().rank()) + " of " +
                                  std::to_string(options_.ranks().size()) + ", layer " + options_.name() +
                                  ": " + error.what());
  }
}

// In training, or as if: the pass meets the other ranks, or waits until a DataParallel does.
at::Tensor EmbeddedSite::pass_among_ranks(const at::Tensor& x, const at::Tensor& residual, Mode mode) {
  const bool counts = mode == Mode::train;
  Meeting& meeting = options_.ranks().meeting();
  const bool joins = meeting.is_expected() && at::GradMode::is_enabled() && mode != Mode::calibrate;
  at::Tensor y;
  if (options_.ranks().size() == 1 || options_.equal_batches()) {
    y = apply(x, residual, towers(as_everywhere(x)), mode);
  } else if (joins && !strategy_->work(step()).meets) {
    WaitingPass waiting{.place = place(x, mode),
                        .layer = weak_from_this(),
                        .step = steps_,
                        .begun = begun_,
                        .counts = counts,
                        .updates = {}};
    y = apply(x, residual, towers(as_everywhere(x)), mode, UpdateAt::known_sizes);
    if (RunningStatistics* statistics = strategy_->running_statistics())
      waiting.updates = statistics->take_updates();
    meeting.wait(std::move(waiting));
    steps_ += counts ? 1 : 0;
    return y;
  } else {
    y = apply(x, residual, towers(meeting.meet(place(x, mode))), mode);
  }
  if (counts) count(steps_++, joins);
  return y;
}

at::Tensor EmbeddedSite::apply(const at::Tensor& x, const at::Tensor& residual, const Towers& towers,
                               Mode mode, UpdateAt update) {
  if (mode == Mode::evaluate_batch) {  // a training pass that does not count
    int64_t values = 0;
    for (int64_t t = 0; t < towers.count(); ++t)
      values += towers.samples(t) * towers.positions(t, positions_of(x));
    refuse_lone(values);
  }
  if (mode != Mode::evaluate_saved && mode != Mode::calibrate && towers.all_samples() != samples_that_fit_) {
    refuse_misfits("strategy", strategy_json_,
                   {.samples_per_tower = towers.all_samples(), .has_length = options_.total_steps() > 0});
    samples_that_fit_ = towers.all_samples();
  }
  Batch batch;
  batch.images = x;
  batch.towers = towers;
  batch.index = static_cast<uint64_t>(mode == Mode::calibrate ? batch_ : steps_);
  batch.micro_batch.update = update;
  OneSite site(layer_, residual);
  return strategy_->forward(site, x, batch.pass(step(), mode, options_.seed())).logits;
}

// A step is in the running pairs. joins: a DataParallel comes, which merges those of all layers.
void EmbeddedSite::count(int64_t step, bool joins) {
  if (keeps_statistics()) {
    const at::NoGradGuard no_grad;
    tracked().fill_(step + 1);
    apart_ = !strategy_->work({step, total_steps()}).frozen;
    merge_in_time(joins);
    seen_.note(buffers_);
  }
}

void EmbeddedSite::merge_in_time(bool joins) {
  const bool alone = options_.ranks().size() == 1;
  if (!alone && joins && options_.always_current() && !summands().empty())
    options_.ranks().meeting().merge_later(weak_from_this());
  else if (alone || options_.always_current())
    load_merged();
}

void EmbeddedSite::complete(const WaitingPass& pass, const Sizes& sizes) {
  if (!keeps_statistics() || !pass.counts) return;
  if (seen_.differ_from(buffers_)) adopt();
  if (pass.begun == begun_) {
    for (const StatisticsUpdate& update : pass.updates) update(towers(sizes));
    count(pass.step, /*joins=*/true);
  } else {
    merge_in_time(/*joins=*/true);  // on other ranks the pass may count
  }
}

void EmbeddedSite::take_back(const WaitingPass& pass) {
  if (pass.counts && pass.begun == begun_) {
    steps_ = std::min(steps_, pass.step);
    *counted_ = false;
  }
}

MeetingPlace EmbeddedSite::place(const at::Tensor& x, Mode mode) const {
  const std::string when = mode == Mode::calibrate
                               ? "recomputing, batch " + std::to_string(batch_)
                               : "training step " + std::to_string(steps_) +
                                     (mode == Mode::train ? "" : ", a pass that does not count");
  return {options_.name() + " (" + when + ")", x.size(0), positions_of(x)};
}

// As if every rank had such a batch.
Sizes EmbeddedSite::as_everywhere(const at::Tensor& x) const {
  const auto ranks = static_cast<size_t>(options_.ranks().size());
  return {std::vector<int64_t>(ranks, x.size(0)), std::vector<int64_t>(ranks, positions_of(x))};
}

Towers EmbeddedSite::towers(const Sizes& sizes) const {
  const int64_t each = options_.towers_per_rank();
  std::vector<int64_t> samples;
  for (size_t r = 0; r < sizes.rows.size(); ++r)
    for (int64_t t = 0; t < each; ++t)
      samples.push_back(sizes.rows[r] / each + (t < sizes.rows[r] % each ? 1 : 0));
  return {std::move(samples), options_.ranks().size(), options_.ranks().rank(), sizes.positions};
}

// Without a gradient, not even of zeros, optimizers pass a parameter over. One that the strategy trains again
// gets it back, but never one that the program itself has frozen.
void EmbeddedSite::freeze_parameters() {
  for (auto& [name, parameter] : parameters_) {
    const auto found = std::ranges::find(frozen_, name);
    if (strategy_->trainable(options_.name() + "." + name, step())) {
      if (found != frozen_.end()) {
        parameter.requires_grad_(true);
        frozen_.erase(found);
      }
    } else if (parameter.requires_grad()) {
      parameter.requires_grad_(false);
      parameter.mutable_grad() = at::Tensor();
      frozen_.push_back(name);
    }
  }
}

bool EmbeddedSite::wants_gradient(const std::string& parameter) const {
  return named(parameters_, parameter).requires_grad() ||
         std::ranges::find(frozen_, parameter) != frozen_.end();
}

void EmbeddedSite::merge() {
  Meeting& meeting = options_.ranks().meeting();
  if (meeting.has_waiting()) meeting.meet({options_.name() + " (merging)"});
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> written;  // from outside since the last pass: it counts, once the ranks have merged
  for (size_t i = 0; apart_ && seen_.differ_from(buffers_) && i < buffers_.size(); ++i)
    written.push_back(buffers_[i].second.clone());
  load_merged();
  for (size_t i = 0; i < written.size(); ++i) buffers_[i].second.copy_(written[i]);
}

void EmbeddedSite::load_merged() {
  if (apart_) {
    const at::NoGradGuard no_grad;
    Calibration none;
    strategy_->running_statistics()->load_into_buffers({}, none);
    apart_ = false;
    seen_.note(buffers_);
  }
}

std::vector<at::Tensor> EmbeddedSite::summands() {
  return strategy_->running_statistics()->summands();
}

void EmbeddedSite::load_sums(const std::vector<at::Tensor>& sums) {
  strategy_->running_statistics()->load_sums(sums);
  apart_ = false;
  seen_.note(buffers_);
}

void EmbeddedSite::adopt() {
  const at::NoGradGuard no_grad;
  steps_ = tracked().item<int64_t>();
  strategy_->running_statistics()->init_from_buffers(steps_);
  *counted_ = false;
  ++begun_;
  apart_ = recomputed_ = false;
  seen_.note(buffers_);
}

void EmbeddedSite::calibrate(bool on) {
  if (on && seen_.differ_from(buffers_)) adopt();  // a layer that no pass reaches keeps what was loaded
  calibrating_ = on;
  strategy_->running_statistics()->drop_collected();
}

void EmbeddedSite::recompute(int64_t batches, const std::function<void(int64_t)>& forward) {
  Calibration calibration(batches, forward);
  strategy_->running_statistics()->load_into_buffers({.kind = Population::Kind::precise, .batches = batches},
                                                     calibration);
  apart_ = false;
  recomputed_ = true;
  seen_.note(buffers_);
}

void EmbeddedSite::refuse(const std::string& message) const {
  bnlab::refuse(options_, strategy_json_, message);
}

}  // namespace bnlab
