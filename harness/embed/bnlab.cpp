#include "harness/embed/bnlab.hpp"

#include <torch/serialize/archive.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/strategy.hpp"

namespace bnlab {
namespace {

std::unique_ptr<World> world_of(const NormsOptions& options) {
  Rendezvous at;
  at.rank = options.ranks.rank;
  at.size = options.ranks.count;
  at.local_rank = options.device.has_index() ? options.device.index() : 0;
  at.address = options.ranks.address;
  at.port = options.ranks.port;
  return join_world(at, options.device.type());
}

Json read_strategy(const std::string& text) {
  const bool is_object = text.find('{') != std::string::npos;
  const Json given = is_object ? Json::parse(text, nullptr, /*allow_exceptions=*/false) : Json(text);
  if (given.is_discarded()) {
    throw Error(Error::Kind::spec, "strategy: expected a name or a JSON object, got " + text);
  }
  return resolved_strategy(given);
}

// One number for each tower, none of them known.
std::vector<int64_t> unknown_samples(const NormsOptions& options) {
  return std::vector<int64_t>(static_cast<size_t>(std::max<int64_t>(options.towers, 0)), 0);
}

}  // namespace

// What the layers of one strategy have in common: it, its world, and whether their buffers hold what
// evaluation uses.
class SharedStrategy {
 public:
  SharedStrategy(const std::string& strategy, const NormsOptions& options)
      : options_(options),
        named_(read_strategy(strategy)),
        world_(world_of(options)),
        strategy_(Registered<Strategy>::create(named_, {.statistics = world_->statistics(),
                                                        .host = world_->host(),
                                                        .seed = options.seed,
                                                        .dtype = options.dtype,
                                                        .device = world_->device(),
                                                        .steps = options.steps,
                                                        .samples_per_tower = unknown_samples(options)})) {
    if (options.towers < 1 || options.towers % world_->size() != 0) {
      refuse("expected at least 1 tower, and as many on each of the " + std::to_string(world_->size()) +
             " ranks, got " + std::to_string(options.towers));
    }
    if (strategy_->normalises_weights()) {
      refuse("it normalises the weights of convolutions, so there are no layers of it to put behind them");
    }
    const RunningStatistics* statistics = strategy_->running_statistics();
    if (statistics != nullptr && statistics->saved().kind == Population::Kind::precise) {
      refuse("it recomputes statistics over training batches, which layers alone do not have; use its base");
    }
  }

  std::shared_ptr<OneSite> site(const std::string& name, int64_t channels) {
    return std::make_shared<OneSite>(strategy_->norm({name, channels, Activation::none}));
  }

  at::Tensor train(OneSite& site, const std::string& name, const at::Tensor& x, int64_t index) {
    merge(false);
    if (x.size(0) != rows_that_fit_) {
      refuse_misfits("strategy", named_,
                     {.samples_per_tower = towers(x).all_samples(), .has_length = options_.steps > 0});
      rows_that_fit_ = x.size(0);
    }
    const Step step = step_of(index);
    for (auto& parameter : site.layer().named_parameters()) {
      if (!strategy_->trainable(name + "." + parameter.key(), step)) {
        parameter.value().requires_grad_(false);  // without a gradient, optimizers pass it over
      }
    }
    return forward(site, x, step, Mode::train);
  }

  at::Tensor evaluate(OneSite& site, const at::Tensor& x, int64_t index) {
    return forward(site, x, step_of(index), Mode::evaluate_saved);
  }

  // Puts the merged statistics into the buffers of all layers, or takes them out again.
  void merge(bool on) {
    RunningStatistics* statistics = strategy_->running_statistics();
    if (statistics == nullptr || merged_ == on) {
      return;
    }
    Calibration none;
    if (on) {
      statistics->load_into_buffers({}, none);
    } else {
      statistics->restore();
    }
    merged_ = on;
  }

  void init_from_buffers() {
    if (RunningStatistics* statistics = strategy_->running_statistics()) {
      statistics->init_from_buffers();
    }
  }

 private:
  at::Tensor forward(OneSite& site, const at::Tensor& x, const Step& step, Mode mode) {
    if (x.device() != world_->device()) {
      refuse("its layers were made for " + world_->device().str() + ", the input is on " + x.device().str());
    }
    Batch batch;
    batch.images = x;
    batch.towers = towers(x);
    batch.index = static_cast<uint64_t>(step.index);
    return strategy_->forward(site, x, batch.pass(step, mode, options_.seed)).logits;
  }

  Step step_of(int64_t index) const { return {index, std::max<int64_t>(options_.steps, 1)}; }

  Towers towers(const at::Tensor& x) const {
    const int ranks = world_->size();
    const int64_t here = options_.towers / ranks;
    std::vector<int64_t> samples;
    for (int64_t t = 0; t < options_.towers; ++t) {
      samples.push_back(x.size(0) / here + (t % here < x.size(0) % here ? 1 : 0));
    }
    return {std::move(samples), ranks, world_->rank()};
  }

  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(Error::Kind::refused, "strategy " + named_.at("name").dump() + ": " + message);
  }

  NormsOptions options_;
  Json named_;
  std::unique_ptr<World> world_;
  std::unique_ptr<Strategy> strategy_;
  bool merged_ = false;
  int64_t rows_that_fit_ = -1;
};

Norm::Norm(std::shared_ptr<SharedStrategy> shared, std::string name, int64_t channels)
    : shared_(std::move(shared)), name_(std::move(name)), site_(shared_->site(name_, channels)) {
  for (const auto& parameter : site_->layer().named_parameters()) {
    register_parameter(parameter.key(), parameter.value());
  }
  for (const auto& buffer : site_->layer().named_buffers()) {
    register_buffer(buffer.key(), buffer.value());
  }
  num_batches_tracked_ = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
}

at::Tensor Norm::forward(at::Tensor x) {
  if (!is_training()) {
    return shared_->evaluate(*site_, x, steps_);
  }
  const at::Tensor y = shared_->train(*site_, name_, x, steps_);
  num_batches_tracked_.fill_(++steps_);
  return y;
}

void Norm::train(bool on) {
  Module::train(on);
  shared_->merge(!on);
}

void Norm::load(torch::serialize::InputArchive& archive) {
  Module::load(archive);
  steps_ = num_batches_tracked_.item<int64_t>();
  shared_->init_from_buffers();
}

Norms::Norms(const std::string& strategy, const NormsOptions& options)
    : shared_(std::make_shared<SharedStrategy>(strategy, options)) {}

std::shared_ptr<Norm> Norms::layer(int64_t channels) {
  return std::make_shared<Norm>(shared_, "norm" + std::to_string(layers_++), channels);
}

}  // namespace bnlab
