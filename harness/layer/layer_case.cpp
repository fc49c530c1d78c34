#include "harness/layer/layer_case.hpp"

#include "harness/communicator/thread_ranks.hpp"
#include "harness/components/parameters.hpp"
#include "harness/components/registry.hpp"
#include "harness/layer/tensor_json.hpp"
#include "harness/one_site.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/tf32.hpp"

namespace bnlab {
namespace {

// Towers that share a rank are one tensor there. Checked for all ranks at once, so that none is left waiting.
void check_placement(const LayerCase& c, int ranks, std::string& key) {
  for (size_t s = 0; s < c.steps.size(); ++s) {
    const std::vector<at::Tensor>& inputs = c.steps[s].inputs;
    key = "steps[" + std::to_string(s) + "].towers";
    if (inputs.empty() || inputs.size() % static_cast<size_t>(ranks) != 0) {
      throw Error(Error::Kind::refused, "expected a number of towers that " + std::to_string(ranks) +
                                            " ranks divide, got " + std::to_string(inputs.size()));
    }
    const size_t per_rank = inputs.size() / static_cast<size_t>(ranks);
    for (size_t t = 0; t < inputs.size(); ++t) {
      const size_t first = t - t % per_rank;
      if (inputs[t].sizes().slice(1) != inputs[first].sizes().slice(1)) {
        key += "[" + std::to_string(t) + "].input.shape";
        throw Error(Error::Kind::refused, "expected all but the number of samples as in tower " +
                                              std::to_string(first) + " of the same rank, " +
                                              shape_text(inputs[first].sizes()) + ", got " +
                                              shape_text(inputs[t].sizes()));
      }
    }
  }
}

void append(std::vector<at::Tensor>& all, const std::vector<at::Tensor>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

void add(at::Tensor& sum, const at::Tensor& more) {
  sum = sum.defined() ? sum + more : more;
}

// What the ranks answered as one: towers in order, gradients of parameters summed in rank order.
LayerAnswer joined(const std::vector<LayerAnswer>& ranks) {
  LayerAnswer all = ranks.front();
  for (size_t r = 1; r < ranks.size(); ++r) {
    for (size_t s = 0; s < all.steps.size(); ++s) {
      LayerStepAnswer& step = all.steps[s];
      const LayerStepAnswer& more = ranks[r].steps[s];
      append(step.outputs, more.outputs);
      append(step.input_gradients, more.input_gradients);
      for (at::Tensor LayerStepAnswer::* sum :
           {&LayerStepAnswer::weight_gradient, &LayerStepAnswer::bias_gradient, &LayerStepAnswer::v_gradient,
            &LayerStepAnswer::gain_gradient}) {
        if ((more.*sum).defined()) add(step.*sum, more.*sum);
      }
      for (const auto& [name, gradient] : more.parameter_gradients)
        add(step.parameter_gradients[name], gradient);
    }
    all.nonfinite_channels += ranks[r].nonfinite_channels;
  }
  return all;
}

// Of the first training step; without one, 0 stands for each.
std::vector<int64_t> samples_of_training(const LayerCase& layer_case) {
  for (const LayerStep& step : layer_case.steps)
    if (step.mode == Mode::train)
      return mapped(step.inputs, [](const at::Tensor& input) { return input.size(0); });
  return std::vector<int64_t>(layer_case.towers(), 0);
}

}  // namespace

BuiltNetwork LayerRank::built(const LayerCase& layer_case, World& world, std::string& key) {
  key = "strategy";
  const auto site = [&](LayerMaker& layers) {
    if (!layer_case.conv) {
      const int64_t channels = layer_case.steps.front().inputs.front().size(1);
      return std::make_shared<OneSite>(layers.norm({"site", channels, layer_case.activation}));
    }
    const LayerConv& conv = *layer_case.conv;
    return std::make_shared<OneSite>(layers.conv({.name = "site",
                                                  .in = conv.v.size(1),
                                                  .out = conv.v.size(0),
                                                  .kernel = conv.v.size(2),
                                                  .stride = conv.stride,
                                                  .padding = conv.padding}));
  };
  return {layer_case.strategy,
          {.statistics = world.statistics(),
           .host = world.host(),
           .seed = layer_case.seed,
           .dtype = statistics_type(layer_case.dtype),
           .device = world.device(),
           .in_a_run = false,
           .fresh_weights = layer_case.fresh_weights,
           .samples_per_tower = samples_of_training(layer_case)},
          site};
}

LayerRank::LayerRank(const LayerCase& layer_case, World& world, std::string& key)
    : case_(layer_case), world_(world), key_(key), built_(built(layer_case, world, key)) {
  const Layer& layer = dynamic_cast<const OneSite&>(built_.network()).layer();
  for (const auto& entry : layer.named_parameters()) state_[entry.key()] = entry.value();
  for (const auto& entry : layer.named_buffers()) state_[entry.key()] = entry.value();
  const at::NoGradGuard no_grad;
  case_.conv ? load_conv(*case_.conv) : load_norm();
  load("running_mean", "running_mean", case_.running_mean);
  load("running_var", "running_var", case_.running_var);
  built_.start_statistics();
}

void LayerRank::load_norm() {
  key_ = "conv";
  if (strategy().normalises_weights())
    refuse("missing: it normalises weights, so the site must be a convolution");
  load("weight", "weight", case_.weight);
  load("bias", "bias", case_.bias);
  for (const auto& [name, value] : case_.parameters) load(name, name, value);
}

void LayerRank::load_conv(const LayerConv& conv) {
  key_ = "conv";
  if (!strategy().normalises_weights())
    refuse("it normalises activations, so the site cannot be a convolution");
  load("conv.v", direction(), conv.v);
  load("conv.gain", "gain", conv.gain.defined() || !has("gain") ? conv.gain : conv.v.flatten(1).norm(2, 1));
  load("conv.bias", "bias", conv.bias);
}

void LayerRank::load(const std::string& key, const std::string& name, const at::Tensor& value) {
  if (!value.defined()) return;
  key_ = key;
  if (!has(name)) refuse("with its options it has no " + name);
  state_.at(name).copy_(value);
}

void LayerRank::refuse(const std::string& message) const {
  throw Error(Error::Kind::refused, "strategy " + case_.strategy.at("name").dump() + ": " + message);
}

LayerStepAnswer LayerRank::step(size_t index) {
  key_ = "steps[" + std::to_string(index) + "].towers";
  const LayerStep& step = case_.steps[index];
  if (strategy().moves_rows()) check_rows(step);
  Batch batch = batch_of(step);
  batch.own_share = step.own_share;
  // Only training asks how many samples a tower has; in evaluations 0 stands for each.
  refuse_misfits("strategy", case_.strategy,
                 {.samples_per_tower = step.mode == Mode::train ? batch.towers.all_samples()
                                                                : std::vector<int64_t>(case_.towers(), 0),
                  .has_length = false});
  LayerStepAnswer answer;
  if (step.mode == Mode::train) {
    apply(step, batch, answer);
    trained_.push_back(batch);
  } else {
    load_into_buffers(step.mode == Mode::evaluate_batch ? Population::Kind::batch : Population::Kind::saved);
    apply(step, batch, answer);
    restore();
  }
  if (!step.merges) return answer;
  load_into_buffers(Population::Kind::saved);
  const auto held = [&](const char* name) {
    return has(name) ? state_.at(name).detach().to(at::kCPU, /*non_blocking=*/false, /*copy=*/true)
                     : at::Tensor();
  };
  answer.running_mean = held("running_mean");
  answer.running_var = held("running_var");
  answer.gain = held("gain");
  answer.bias = case_.conv ? held("bias") : at::Tensor();
  restore();
  return answer;
}

// Ranks that exchange rows of different shapes would take the process down.
void LayerRank::check_rows(const LayerStep& step) const {
  const auto row = [](const at::Tensor& x) { return x.sizes().slice(1); };
  for (size_t t = 1; t < step.inputs.size(); ++t) {
    if (row(step.inputs[t]) != row(step.inputs[0])) {
      refuse("its rows travel between towers, so all must agree in all dimensions but the first; tower " +
             std::to_string(t) + " differs from tower 0");
    }
  }
}

// The index counts the training steps before this one.
Batch LayerRank::batch_of(const LayerStep& step) const {
  const auto sizes = mapped(step.inputs, [](const at::Tensor& input) { return input.size(0); });
  std::vector<int64_t> positions;  // at the site, which is not behind a convolution
  if (!case_.conv)
    for (size_t t = 0; t < sizes.size(); t += sizes.size() / static_cast<size_t>(world_.size()))
      positions.push_back(positions_of(step.inputs[t]));
  Batch batch;
  batch.towers = Towers(sizes, world_.size(), world_.rank(), std::move(positions));
  batch.index = static_cast<uint64_t>(steps_done());
  if (step.mode == Mode::train) {
    batch.micro_batch = {.index = static_cast<int64_t>(trained_.size()) % case_.accumulate,
                         .count = case_.accumulate,
                         .update = case_.statistics_per_step ? UpdateAt::end_of_step : UpdateAt::every_pass};
  }
  const auto first = step.inputs.begin() + batch.towers.first();
  const std::vector<at::Tensor> own(first, first + batch.towers.per_rank());
  batch.images = at::cat(own)
                     .detach()
                     .to(at::TensorOptions().device(world_.device()).dtype(case_.dtype))
                     .contiguous(case_.format(own.front().dim()));
  return batch;
}

void LayerRank::apply(const LayerStep& step, const Batch& batch, LayerStepAnswer& answer) {
  const at::Tensor images = batch.images.detach().requires_grad_(!step.gradients.empty());
  built_.network().zero_grad();
  std::vector<int64_t> rows;
  for (int64_t t = 0; t < batch.towers.per_rank(); ++t)
    rows.push_back(batch.towers.samples(batch.towers.first() + t));
  Ledger& ledger = world_.ledger();
  ledger.clear();
  ledger.keep_list(true);
  const Outputs outputs = strategy().forward(built_.network(), images, batch.pass({steps_done()}, step.mode));
  const at::Tensor& y = outputs.logits;
  answer.permutation = outputs.permutation;
  answer.outputs = y.detach().cpu().split_with_sizes(rows);
  if (!step.gradients.empty()) {
    y.backward(output_gradients(step, y.detach().split_with_sizes(rows)));
    const at::Tensor dx = images.grad();
    answer.input_gradients = (dx.defined() ? dx : at::zeros_like(batch.images)).cpu().split_with_sizes(rows);
    answer.weight_gradient = case_.conv ? at::Tensor() : gradient("weight");
    answer.bias_gradient = gradient("bias");
    answer.v_gradient = case_.conv ? gradient(direction()) : at::Tensor();
    answer.gain_gradient = gradient("gain");
    answer.parameter_gradients = other_gradients();
  }
  ledger.keep_list(false);
  answer.collectives = ledger.list();
}

// Of this rank's towers in one tensor, laid out as the outputs; a missing one is zero.
at::Tensor LayerRank::output_gradients(const LayerStep& step, const std::vector<at::Tensor>& outputs) const {
  std::vector<at::Tensor> own;
  const size_t first = static_cast<size_t>(world_.rank()) * outputs.size();
  for (size_t t = 0; t < outputs.size(); ++t) {
    const at::Tensor& given = step.gradients[first + t];
    own.push_back(given.defined() ? given.to(outputs[t].options()) : at::zeros_like(outputs[t]));
  }
  return at::cat(own).contiguous(outputs.front().suggest_memory_format());
}

// Of a norm site's parameters but weight and bias.
std::map<std::string, at::Tensor> LayerRank::other_gradients() const {
  std::map<std::string, at::Tensor> all;
  for (const auto& [name, tensor] : state_)
    if (!case_.conv && tensor.requires_grad() && name != "weight" && name != "bias")
      all[name] = gradient(name);
  return all;
}

// Undefined where the site has no such parameter; zero where nothing has reached it.
at::Tensor LayerRank::gradient(const std::string& name) const {
  if (!has(name)) return {};
  const at::Tensor& parameter = state_.at(name);
  return (parameter.grad().defined() ? parameter.grad() : at::zeros_like(parameter)).detach().cpu();
}

void LayerRank::load_into_buffers(Population::Kind population) {
  const at::NoGradGuard no_grad;
  const auto passes = static_cast<int64_t>(trained_.size());
  const int64_t batches = (passes + case_.accumulate - 1) / case_.accumulate;
  Calibration calibration(batches, [&](int64_t index) {  // the latest batch first
    const int64_t first = (batches - 1 - index) * case_.accumulate;
    for (int64_t pass = first; pass < std::min(first + case_.accumulate, passes); ++pass)
      built_.forward(trained_.at(static_cast<size_t>(pass)), {steps_done()}, Mode::calibrate);
  });
  if (RunningStatistics* statistics = built_.statistics())
    statistics->load_into_buffers({.kind = population}, calibration);
}

void LayerRank::restore() {
  if (RunningStatistics* statistics = built_.statistics()) statistics->restore();
}

int64_t LayerRank::nonfinite_channels() const {
  const RunningStatistics* statistics = built_.statistics();
  return statistics == nullptr ? 0 : statistics->nonfinite_channels();
}

LayerAnswer apply_layer(const LayerCase& layer_case, int ranks, at::DeviceType device, std::string* key) {
  ThreadRanks threads(ranks, device);
  return apply_layer(layer_case, threads, key);
}

LayerAnswer apply_layer(const LayerCase& layer_case, ThreadRanks& ranks, std::string* key) {
  allow_tf32(false);
  std::vector<std::string> keys(static_cast<size_t>(ranks.ranks()));
  std::vector<LayerAnswer> answers(keys.size());
  try {
    check_placement(layer_case, ranks.ranks(), keys[0]);
    ranks.run([&](World& world) {
      const auto r = static_cast<size_t>(world.rank());
      LayerRank rank(layer_case, world, keys[r]);
      for (size_t s = 0; s < layer_case.steps.size(); ++s) answers[r].steps.push_back(rank.step(s));
      answers[r].nonfinite_channels = rank.nonfinite_channels();
    });
  } catch (...) {
    if (key != nullptr) *key = keys[0];
    throw;
  }
  return joined(answers);
}

Json resolved_strategy(const Json& strategy) {
  Problems problems;
  const Json all = resolve({component_key("strategy")}, {{"strategy", strategy}}, "", problems);
  if (!problems.empty())
    throw Error(Error::Kind::spec, problems.found().front().first + ": " + problems.found().front().second);
  return all.at("strategy");
}

}  // namespace bnlab
