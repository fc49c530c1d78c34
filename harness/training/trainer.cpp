#include "harness/training/trainer.hpp"

#include <limits>
#include <utility>

#include "harness/components/registry.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/activity.hpp"
#include "harness/training/gradient_routes.hpp"
#include "harness/training/precision.hpp"
#include "harness/training/weights.hpp"

namespace bnlab {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

std::unique_ptr<Loss> make_loss(const RunSpec& spec, const Data& data, World& world) {
  return Registered<Loss>::create(
      data.task().loss(),
      {.mean = spec.loss_mean,
       .may_have_void = data.task().may_have_void(),
       .classes = data.task().classes(),
       .communicator = world.statistics(),  // a graph that holds calls of two NCCL groups can deadlock
       .weights = at::TensorOptions().device(world.device()).dtype(parameter_type(spec.precision))});
}

std::unique_ptr<Optimizer> make_optimizer(const RunSpec& spec, const Data& data, const TrainedModel& model) {
  return Registered<Optimizer>::create(
      spec.optimizer,
      {.parameters = model.network().named_parameters(), .norm_sites = model.sites(), .steps = data.steps()});
}

std::unique_ptr<WeightEma> make_ema(const RunSpec& spec, const TrainedModel& model) {
  return spec.weight_ema
             ? std::make_unique<WeightEma>(*spec.weight_ema, model.network().parameters(), model.statistics())
             : nullptr;
}

std::optional<EarlyStop> make_early_stop(const RunSpec& spec, World& world) {
  return spec.stop_early ? std::optional<EarlyStop>(std::in_place, *spec.stop_early, world,
                                                    parameter_type(spec.precision))
                         : std::nullopt;
}

}  // namespace

Trainer::Trainer(const RunSpec& spec, const std::string& data_dir, World& world, Checkpoints& checkpoints,
                 RunLog log)
    : spec_(spec),
      world_(world),
      checkpoints_(checkpoints),
      data_(spec, data_dir, world),
      model_(spec, data_, world),
      loss_(make_loss(spec, data_, world)),
      optimizer_(make_optimizer(spec, data_, model_)),
      graphs_(spec, model_.network().parameters(), world, recorders_of(world.device()),
              why_none_is_replayed()),
      gradient_sync_(make_gradient_sync(spec,
                                        {.parameters = model_.network().parameters(),
                                         .optimizer_state = optimizer_->state(),
                                         .statistics = model_.statistics(),
                                         .steps = data_.steps(),
                                         .replayed = graphs_.possible()},
                                        world)),
      ema_(make_ema(spec, model_)),
      loss_scale_(spec.precision == Precision::float16
                      ? std::make_unique<LossScale>(spec.loss_scaling, world.device())
                      : nullptr),
      evaluator_(spec, data_, model_, world, ema_.get()),
      history_(std::move(log), data_, world, parameter_type(spec.precision)),
      early_stop_(make_early_stop(spec, world)),
      costs_(world),
      timer_(world.device()) {
  if (spec.select) {
    best_.emplace([this](State& state) {
      model_.describe(state);
      if (ema_) ema_->describe(state);
    });
  }
  if (checkpoints_.found()) {
    checkpoints_.restore([this](State& state) { describe(state); });
    resumed_at_steps_.push_back(steps_done_);
    costs_.resume();
  }
}

void Trainer::run() {
  while (steps_done_ < data_.steps() && !diverged() && !stopped()) {
    if (steps_done_ == spec_.warmup_steps) between_steps([this] { costs_.begin(steps_done_); });
    train_step(steps_done_);
    ++steps_done_;
    const bool ends_early =
        steps_done_ < data_.steps() && may_stop(steps_done_) && early_stop_->ends_run(steps_done_);
    if (ends_early || reports(steps_done_))
      history_.report(steps_done_, optimizer_->learning_rate(steps_done_ - 1), gradient_norm_);
    if (!diverged() && (ends_early || evaluates(steps_done_))) between_steps([this] { evaluate(); });
    if (!diverged() && !ends_early && steps_done_ < data_.steps() && checkpoints_.due(steps_done_))
      between_steps([this] { checkpoints_.save(steps_done_, [this](State& state) { describe(state); }); });
  }
  if (const RunningStatistics* statistics = model_.statistics())
    nonfinite_channels_ = statistics->nonfinite_channels();
  if (best_ && !diverged()) between_steps([this] { take_best(); });
  history_.end();
  graphs_.invalidate();  // NCCL does not shut down before the graphs that its exchanges stand in
}

void Trainer::repeat_steps(int64_t steps) {
  if (steps_repeated_ == 0) data_.repeat();
  for (int64_t i = 0; i < steps; ++i, ++steps_repeated_) train_step(steps_repeated_ % data_.steps());
}

void Trainer::train_steps(int64_t steps) {
  for (const int64_t end = steps_done_ + steps; steps_done_ < end; ++steps_done_) train_step(steps_done_);
}

void Trainer::evaluate() {
  if (!best_) {
    history_.add_evaluation(steps_done_, evaluator_.evaluate(steps_done_));
    return;
  }
  const Json metrics = evaluator_.evaluate(steps_done_, EvaluationSplit::validation);
  history_.add_validation(steps_done_, metrics);
  // A strategy without running statistics is evaluated as `saved` alone.
  const std::string& wanted = spec_.select->population;
  best_->offer(steps_done_,
               metrics.at(metrics.contains(wanted) ? wanted : "saved").at(data_.task().headline()));
}

void Trainer::take_best() {
  best_->restore();
  history_.add_test(best_->step(), evaluator_.evaluate(best_->step()));
}

Json Trainer::selected() const {
  return {{"step", best_->step()},
          {data_.task().headline(), best_->score()},
          {"population", spec_.select->population},
          {"evaluations", best_->evaluations()},
          {"validation_samples", data_.task_of(EvaluationSplit::validation).test_samples()}};
}

void Trainer::between_steps(const std::function<void()>& work) {
  costs_.pause();
  graphs_.invalidate();
  Activity::begin_part(ActivityPart::between_steps);
  work();
  Activity::begin_part(ActivityPart::none);
  costs_.resume();
}

bool Trainer::reports(int64_t steps_done) const {
  return steps_done == data_.steps() || steps_done % spec_.log_every == 0;
}

bool Trainer::evaluates(int64_t steps_done) const {
  return steps_done == data_.steps() || (spec_.eval_every > 0 && steps_done % spec_.eval_every == 0);
}

std::string Trainer::why_none_is_replayed() const {
  if (const std::string why = model_.network().why_not_replayed(); !why.empty()) return why;
  if (spec_.precision == Precision::float16)
    return "the host looks whether the gradients of every step are finite, since its loss is scaled";
  const auto repeats = [this](int64_t step) { return model_.repeats(step); };
  const auto pauses = [this](int64_t step) {
    return step == spec_.warmup_steps || evaluates(step) || checkpoints_.due(step);
  };
  return bnlab::why_none_is_replayed(data_.steps(), repeats, pauses);
}

void Trainer::describe(State& state) {
  state.value("steps_done", steps_done_);
  state.value("resumed_at_steps", resumed_at_steps_);
  model_.describe(state);
  optimizer_->describe(state);
  if (ema_) ema_->describe(state);
  if (loss_scale_) loss_scale_->describe(state);
  history_.describe(state);
  if (early_stop_) early_stop_->describe(state);
  if (best_) best_->describe(state);
  graphs_.describe(state);
  costs_.describe(state, steps_done_);
}

void Trainer::train_step(int64_t step) {
  begin_step(step);
  const Batch batch = graphs_.begin(data_.training(step), model_.repeats(step));
  end_part(StepTimer::data, ActivityPart::forward);

  const auto forward = [&] { return forward_passes(batch, step); };
  const at::Tensor loss = graphs_.forward(forward, [this] { gradient_sync_->after_backward(); });
  end_part(StepTimer::forward, ActivityPart::backward);

  graphs_.backward();
  gradient_sync_->exchange();
  end_part(StepTimer::backward, ActivityPart::optimizer);

  const at::Tensor own_loss = loss_scale_ ? loss_scale_->unscaled(loss) : loss;
  const bool counts = !loss_scale_ || loss_scale_->unscale(model_.network().parameters());
  const auto update = [&](StepBytes* bytes) {
    if (counts)
      optimizer_->step(step, [&](const std::string& name) { return model_.trainable(name, step); }, bytes);
    if (counts && ema_) ema_->update(step, bytes);
    history_.add(own_loss);
    if (early_stop_) early_stop_->add(own_loss);
  };
  graphs_.update(update, optimizer_->can_be_recorded());
  if (reports(step + 1) || may_stop(step + 1))
    gradient_norm_ = counts ? optimizer_->gradient_norm() : at::full_like(own_loss, kInfinite);
  gradient_sync_->after_step(step + 1);
  end_part(StepTimer::optimizer, ActivityPart::none);
  timer_.end_step();
  Activity::end_step();
}

void Trainer::begin_step(int64_t step) {
  timer_.begin_step();
  Activity::begin_step(step);
  Activity::begin_part(ActivityPart::data);
}

void Trainer::end_part(StepTimer::Part part, ActivityPart next) {
  timer_.end(part);
  Activity::begin_part(next);
}

// And all backward passes but the last, with which the exchange of gradients goes.
at::Tensor Trainer::forward_passes(const Batch& batch, int64_t step) {
  gradient_sync_->before_forward();
  const Loss::OfOutputs loss_of = loss_->begin(batch);
  at::Tensor before;  // the loss of the passes that are done, a number
  for (int64_t pass = 0;; ++pass) {
    const Batch passed = data_.micro_batch(batch, pass);
    const at::Tensor total = Loss::total(loss_of, model_.forward(passed, step, Mode::train), passed);
    const at::Tensor loss = loss_scale_ ? loss_scale_->scaled(total) : total;
    if (pass + 1 == data_.passes()) {
      gradient_sync_->before_backward();
      return before.defined() ? loss + before : loss;
    }
    end_part_of_pass(StepTimer::forward, ActivityPart::backward);
    loss.backward();
    end_part_of_pass(StepTimer::backward, ActivityPart::forward);
    before = before.defined() ? before + loss.detach() : loss.detach();
  }
}

void Trainer::end_part_of_pass(StepTimer::Part part, ActivityPart next) {
  if (graphs_.eager()) end_part(part, next);
}

Json Trainer::result() {
  at::Tensor nonfinite = at::full({}, nonfinite_channels_, at::kLong).to(world_.device());
  const Json traffic = costs_.traffic(steps_done_);
  const std::optional<double> exchange_share = costs_.exchange_share();
  const Json memory = costs_.memory();
  world_.gradients().all_reduce(nonfinite, Purpose::control);
  int64_t parameters = 0;
  for (const at::Tensor& p : model_.network().parameters()) parameters += p.numel();
  Json result = {{"steps", steps_done_},
                 {"epochs", data_.epochs(steps_done_)},
                 {"images", steps_done_ * data_.towers().total_samples()},
                 {"sites", evaluator_.sites(site_values(spec_.model, data_.task().training_image_size()))},
                 {"shards", spec_.resolved.at("shards")},
                 {"parameters", parameters}};
  if (best_ && !diverged()) result["selected"] = selected();
  if (stopped()) result["stopped_early"] = early_stop_->stopped();
  if (!resumed_at_steps_.empty()) result["resumed_at_steps"] = resumed_at_steps_;
  result.update(history_.summary());
  result["throughput"] =
      timer_.throughput(spec_.warmup_steps, data_.towers().total_samples(), world_.gradients());
  if (exchange_share && !result["throughput"].is_null())
    result["throughput"]["exchange_share"] = *exchange_share;
  result["memory"] = memory;
  result["communication"] = traffic;
  if (const Json graphs = graphs_.summary(); !graphs.is_null()) result["cuda_graph"] = graphs;
  if (loss_scale_) result["loss_scaling"] = loss_scale_->summary();
  result["nonfinite_channels"] = nonfinite.item<int64_t>();
  return result;
}

int64_t Trainer::save_weights(const std::string& run_dir) {
  const bool writes = world_.rank() == 0;
  const Network& network = model_.network();
  evaluator_.load_into_buffers({}, answering_step());
  const int64_t bytes = writes ? write_safetensors(run_dir + "/" + kWeightsFile, tensors_of(network)) : 0;
  std::vector<NamedTensor> pairs;
  for (const auto& [name, population] : evaluator_.carried()) {
    evaluator_.load_into_buffers(population, answering_step());
    for (const auto& buffer : network.named_buffers())
      pairs.push_back({name + "/" + buffer.key(), buffer.value().clone()});
  }
  evaluator_.restore();
  if (writes && !pairs.empty()) write_safetensors(run_dir + "/" + kPopulationsFile, pairs);
  return bytes;
}

}  // namespace bnlab
