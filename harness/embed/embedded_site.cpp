#include "harness/embed/embedded_site.hpp"

#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "harness/communicator/world.hpp"
#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/layer/tensor_json.hpp"
#include "harness/mapped.hpp"

namespace bnlab {
namespace {

Json parsed(const std::string& text) {
  if (text.find('{') == std::string::npos) {
    return Json{{"name", text}};
  }
  Json given = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (given.is_discarded()) {
    throw Error(Error::Kind::spec, "strategy: expected a name or a JSON object, got " + text);
  }
  return given;
}

// Puts the module's own options where the strategy, or its base, has such an option that the JSON does not
// give. One that is as BatchNorm2d begins with it leaves the strategy's own beginning.
void fill_in(Json& resolved, const Json& given, const BatchNormOptions& options) {
  const BatchNormOptions plain;
  const auto put = [&](const char* key, const Json& value, bool differs) {
    if (differs && resolved.contains(key) && !(given.is_object() && given.contains(key))) {
      resolved[key] = value;
    }
  };
  put("eps", options.eps(), options.eps() != plain.eps());
  put("momentum", options.momentum() ? Json(*options.momentum()) : Json(),
      options.momentum() != plain.momentum());
  put("affine", options.affine(), options.affine() != plain.affine());
  if (resolved.contains("base") && resolved.at("base").is_object()) {
    fill_in(resolved["base"], given.is_object() && given.contains("base") ? given.at("base") : Json(),
            options);
  }
}

// And the other way: what the JSON gives of the module's own options.
void read_back(const Json& given, BatchNormOptions& options) {
  if (!given.is_object()) {
    return;
  }
  if (given.contains("base")) {
    read_back(given.at("base"), options);
  }
  if (given.contains("eps")) {
    options.eps(given.at("eps"));
  }
  if (given.contains("momentum")) {
    options.momentum(given.at("momentum").is_null() ? std::nullopt
                                                    : std::optional<double>(given.at("momentum")));
  }
  if (given.contains("affine")) {
    options.affine(given.at("affine"));
  }
}

Json strategy_of(const BatchNormOptions& options) {
  const Json given = parsed(options.strategy());
  Json resolved = resolved_strategy(given);
  fill_in(resolved, given, options);
  return resolved_strategy(resolved);
}

// Whether the strategy's exchange may take element counts from sizes, which then must be every rank's own.
bool counts_by_sizes(const Json& strategy) {
  return strategy.contains("route") || (strategy.contains("base") && counts_by_sizes(strategy.at("base")));
}

int64_t positions_of(const at::Tensor& x) {
  int64_t product = 1;
  for (int64_t d = 2; d < x.dim(); ++d) {
    product *= x.size(d);
  }
  return product;
}

// [rows, C, ...] as [rows * positions, C], and back.
at::Tensor flattened(const at::Tensor& x) {
  return x.defined() ? x.movedim(1, -1).reshape({-1, x.size(1)}) : x;
}

at::Tensor unflattened(const at::Tensor& y, const at::Tensor& like) {
  return y.view(like.movedim(1, -1).sizes()).movedim(-1, 1);
}

}  // namespace

Network::Maps FusedSite::features(at::Tensor x, const Pass& pass) {
  const at::Tensor residual = std::exchange(residual_, at::Tensor());
  if (residual.defined() && !pass.rows.empty()) {
    throw Error(Error::Kind::refused,
                "this strategy moves rows between towers and a residual would not follow them; add it behind "
                "the layer");
  }
  return {layer_->forward(std::move(x), residual, pass)};
}

EmbeddedSite::EmbeddedSite(const BatchNormOptions& options)
    : options_(options), strategy_json_(strategy_of(options)) {
  read_back(parsed(options.strategy()), options_);
  if (options.num_features() < 1 || options.towers_per_rank() < 1) {
    refuse("expected at least 1 feature and 1 tower, got " + std::to_string(options.num_features()) +
           " and " + std::to_string(options.towers_per_rank()));
  }
  World& world = options.ranks().world();
  const auto towers = static_cast<size_t>(options.towers_per_rank() * world.size());
  strategy_ =
      Registered<Strategy>::create(strategy_json_, {.statistics = world.statistics(),
                                                    .host = world.host(),
                                                    .seed = options.seed(),
                                                    .steps = options.total_steps(),
                                                    .samples_per_tower = std::vector<int64_t>(towers, 0)});
  if (const std::string why = strategy_->why_not_alone(); !why.empty()) {
    refuse(why);
  }
  network_ = std::make_shared<FusedSite>(strategy_->norm(
      {options.name(), options.num_features(), options.relu() ? Activation::relu : Activation::none}));
  for (const auto& parameter : network_->layer().named_parameters()) {
    parameters_.emplace_back(parameter.key(), parameter.value());
  }
  for (const auto& buffer : network_->layer().named_buffers()) {
    buffers_.emplace_back(buffer.key(), buffer.value());
  }
  if (strategy_->running_statistics() != nullptr && options.track_running_stats()) {
    tracked_ = at::zeros({}, at::kLong);
  }
  note_writes();
}

at::Tensor EmbeddedSite::named(const Named& tensors, const std::string& name) {
  for (const auto& [key, tensor] : tensors) {
    if (key == name) {
      return tensor;
    }
  }
  return {};
}

at::Tensor EmbeddedSite::forward(bool training, const at::Tensor& x, const at::Tensor& residual) {
  check(x, residual);
  if (keeps_statistics() && writes() != seen_) {
    adopt();
  }
  if (calibrating_) {
    return pass(x, residual, Mode::calibrate);
  }
  const bool has_statistics = strategy_->running_statistics() != nullptr;
  if (!training && has_statistics && !options_.track_running_stats()) {
    // The batch at hand, of this rank alone: evaluation exchanges nothing.
    at::Tensor y = at::batch_norm(x, parameter("weight"), parameter("bias"), {}, {}, /*training=*/true, 0,
                                  options_.eps(), /*cudnn_enabled=*/false);
    y = residual.defined() ? y + residual : y;
    return options_.relu() ? y.relu() : y;
  }
  if (!training) {
    return apply(x, residual, towers(as_everywhere(x), false), Mode::evaluate_saved);
  }
  const bool trains = !has_statistics || counts();
  if (trains) {
    freeze_parameters();
  }
  at::Tensor y = pass(x, residual, trains ? Mode::train : Mode::evaluate_batch);
  if (options_.counting() == Counting::first_before_backward && y.requires_grad()) {
    *counted_ = *counted_ || trains;
    // Of every pass: the output of the one that counted may be dropped, and never see a backward pass.
    y.register_hook([counted = counted_](const at::Tensor&) { *counted = false; });
  }
  return y;
}

void EmbeddedSite::check(const at::Tensor& x, const at::Tensor& residual) const {
  if (x.dim() < 2 || x.dim() > 5 || x.size(1) != options_.num_features()) {
    refuse("expected an input [rows, " + std::to_string(options_.num_features()) +
           ", ...] of 2 to 5 dimensions, got " + shape_text(x.sizes()));
  }
  if (residual.defined() && residual.sizes() != x.sizes()) {
    refuse("expected a residual like the input, " + shape_text(x.sizes()) + ", got " +
           shape_text(residual.sizes()));
  }
}

bool EmbeddedSite::counts() const {
  if (!options_.track_running_stats()) {
    return false;
  }
  return options_.counting() == Counting::every_forward || (at::GradMode::is_enabled() && !*counted_);
}

at::Tensor EmbeddedSite::pass(const at::Tensor& x, const at::Tensor& residual, Mode mode) {
  try {
    return pass_among_ranks(x, residual, mode);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::communication) {
      throw;
    }
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
    y = apply(x, residual, towers(as_everywhere(x), false), mode);
  } else if (joins && !strategy_->work(step()).meets) {
    WaitingPass waiting{place(x, mode), weak_from_this(), steps_, begun_, counts, {}};
    y = apply(x, residual, towers(as_everywhere(x), false), mode, &waiting.updates);
    meeting.wait(std::move(waiting));
    steps_ += counts ? 1 : 0;
    return y;
  } else {
    const Sizes sizes = meeting.meet(place(x, mode));
    const bool differ =
        std::ranges::adjacent_find(sizes.positions, std::not_equal_to<>()) != sizes.positions.end();
    y = differ && counts_by_sizes(strategy_json_)
            ? unflattened(apply(flattened(x), flattened(residual), towers(sizes, true), mode), x)
            : apply(x, residual, towers(sizes, false), mode);
  }
  if (counts) {
    count(steps_++, joins);
  }
  return y;
}

at::Tensor EmbeddedSite::apply(const at::Tensor& x, const at::Tensor& residual, const Towers& towers,
                               Mode mode, std::vector<StatisticsUpdate>* later) {
  if (mode == Mode::train && towers.all_samples() != samples_that_fit_) {
    refuse_misfits("strategy", strategy_json_,
                   {.samples_per_tower = towers.all_samples(), .has_length = options_.total_steps() > 0});
    samples_that_fit_ = towers.all_samples();
  }
  Batch batch;
  batch.images = x;
  batch.towers = towers;
  batch.index = static_cast<uint64_t>(mode == Mode::calibrate ? batch_ : steps_);
  Pass pass = batch.pass(step(), mode, options_.seed());
  pass.later = later;
  network_->set_residual(residual);
  return strategy_->forward(*network_, x, pass).logits;
}

// A step is in the running pairs. joins: a DataParallel comes, which merges those of all layers.
void EmbeddedSite::count(int64_t step, bool joins) {
  if (keeps_statistics()) {
    const at::NoGradGuard no_grad;
    tracked_.fill_(step + 1);
    apart_ = !strategy_->work({step, total_steps()}).frozen;
    merge_in_time(joins);
    note_writes();
  }
}

void EmbeddedSite::merge_in_time(bool joins) {
  const bool alone = options_.ranks().size() == 1;
  if (!alone && joins && options_.always_current() && !summands().empty()) {
    options_.ranks().meeting().merge_later(weak_from_this());
  } else if (alone || options_.always_current()) {
    load_merged();
  }
}

void EmbeddedSite::complete(const WaitingPass& pass, const Sizes& sizes) {
  if (!keeps_statistics() || !pass.counts) {
    return;
  }
  if (writes() != seen_) {
    adopt();
  }
  if (pass.begun == begun_) {
    for (const StatisticsUpdate& update : pass.updates) {
      update(towers(sizes, false));
    }
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

// by_element: a sample is one position of a row.
Towers EmbeddedSite::towers(const Sizes& sizes, bool by_element) const {
  const int64_t each = options_.towers_per_rank();
  std::vector<int64_t> samples;
  for (size_t r = 0; r < sizes.rows.size(); ++r) {
    for (int64_t t = 0; t < each; ++t) {
      const int64_t rows = sizes.rows[r] / each + (t < sizes.rows[r] % each ? 1 : 0);
      samples.push_back(by_element ? rows * sizes.positions[r] : rows);
    }
  }
  return {std::move(samples), options_.ranks().size(), options_.ranks().rank()};
}

// Without a gradient, optimizers pass a parameter over. One that the strategy trains again gets it back, but
// never one that the program itself has frozen.
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
  if (meeting.has_waiting()) {
    meeting.meet({options_.name() + " (merging)"});
  }
  load_merged();
}

void EmbeddedSite::load_merged() {
  if (apart_) {
    const at::NoGradGuard no_grad;
    Calibration none;
    strategy_->running_statistics()->load_into_buffers({}, none);
    apart_ = false;
    note_writes();
  }
}

std::vector<at::Tensor> EmbeddedSite::summands() {
  return strategy_->running_statistics()->summands();
}

void EmbeddedSite::load_sums(const std::vector<at::Tensor>& sums) {
  strategy_->running_statistics()->load_sums(sums);
  apart_ = false;
  note_writes();
}

void EmbeddedSite::adopt() {
  const at::NoGradGuard no_grad;
  steps_ = tracked_.item<int64_t>();
  strategy_->running_statistics()->init_from_buffers(steps_);
  *counted_ = false;
  ++begun_;
  apart_ = false;
  note_writes();
}

EmbeddedSite::Writes EmbeddedSite::writes() const {
  Writes all{};
  const std::array<at::Tensor, 3> tensors{buffer("running_mean"), buffer("running_var"), tracked_};
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].defined()) {
      // What is made under InferenceMode has no version; training, which writes, does not happen there.
      all[i] = {tensors[i].const_data_ptr(), tensors[i].is_inference() ? 0 : tensors[i]._version()};
    }
  }
  return all;
}

void EmbeddedSite::note_writes() {
  if (keeps_statistics()) {
    seen_ = writes();
  }
}

void EmbeddedSite::calibrate(bool on) {
  calibrating_ = on;
  strategy_->running_statistics()->drop_collected();
}

void EmbeddedSite::recompute(int64_t batches, const std::function<void(int64_t)>& forward) {
  Calibration calibration(batches, forward);
  strategy_->running_statistics()->load_into_buffers({.kind = Population::Kind::precise, .batches = batches},
                                                     calibration);
  apart_ = false;
  note_writes();
}

void EmbeddedSite::refuse(const std::string& message) const {
  throw Error(Error::Kind::refused, "layer " + options_.name() + " (strategy " +
                                        strategy_json_.at("name").get<std::string>() + "): " + message);
}

}  // namespace bnlab
