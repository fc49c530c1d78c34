#include "strategies/engine/moving_norm.hpp"

#include <torch/types.h>

#include "harness/support/error.hpp"
#include "strategies/engine/norm_function.hpp"
#include "strategies/engine/running_pass.hpp"

namespace bnlab {

MovingState::MovingState(int64_t towers, int64_t window, int64_t channels,
                         const at::TensorOptions& statistics)
    : towers_(towers), window_(window), channels_(channels), statistics_(statistics) {
  if (towers > 0) of_towers(towers, statistics.device());
}

kernels::MovingWindows& MovingState::of_towers(int64_t towers, at::Device device) {
  const at::Tensor& held = windows_.squares;
  if (!held.defined() || held.size(0) != towers || held.device() != device)
    windows_ = kernels::MovingWindows(towers, window_, channels_, statistics_.device(device));
  return windows_;
}

void MovingState::describe(State& state, const std::string& path) {
  if (towers_ == 0) return;
  of_towers(towers_, statistics_.device());
  state.tensor(path + ".squares", windows_.squares, Across::towers);
  state.tensor(path + ".products", windows_.products, Across::towers);
  state.tensor(path + ".square_counts", windows_.square_counts, Across::towers);
  state.tensor(path + ".product_counts", windows_.product_counts, Across::towers);
}

void MovingStatistics::add(std::shared_ptr<SiteStatistics> site, std::shared_ptr<MovingState> state) {
  BnStatistics::add(std::move(site));
  states_.push_back(std::move(state));
}

void MovingStatistics::init_from_buffers(int64_t steps) {
  BnStatistics::init_from_buffers(steps);
  for (const auto& state : states_) state->reset();
}

void MovingStatistics::describe(State& state) {
  BnStatistics::describe(state);
  for (size_t i = 0; i < states_.size(); ++i) states_[i]->describe(state, "moving." + std::to_string(i));
  // A rank's gradients are those of its part of the loss, of which the ranks' mean is the whole.
  int64_t ranks = ranks_;
  state.value("moving.ranks", ranks);
  for (const auto& each : states_)
    if (ranks != ranks_) each->scale_products(static_cast<double>(ranks_) / static_cast<double>(ranks));
}

namespace {

class MovingPass : public NormPass {
 public:
  // state: null where nothing is remembered.
  MovingPass(const Sets& towers, std::shared_ptr<const Rules> rules, const kernels::MovingOptions& options,
             at::ScalarType precision, std::unique_ptr<PassUpdate> update, std::shared_ptr<MovingState> state)
      : NormPass(towers.offsets),
        rules_(std::move(rules)),
        options_(options),
        precision_(precision),
        update_(std::move(update)),
        state_(std::move(state)) {}

  kernels::Coefficients forward(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias) override {
    const at::Tensor local = kernels::moments(x, offsets());  // [G, 1 + 2C]
    windows_ = state_ ? &state_->of_towers(local.size(0), x.device()) : nullptr;
    moving_ = kernels::moving_forward(local, windows_, options_, update_->begin(), weight, bias, precision_);
    update_->remember({.local = moving_.rows});
    forward_ = moving_.coefficients;
    return forward_;
  }

  kernels::BackwardCoefficients backward(const kernels::Incoming& incoming,
                                         const at::Tensor& weight) override {
    return kernels::moving_backward(moving_, incoming.sums(moving_.coefficients.mean), windows_, options_,
                                    weight);
  }

  NormFormula formula(const at::Tensor&) const override { refuse_second_derivative(rules_->strategy); }

 private:
  std::shared_ptr<const Rules> rules_;
  kernels::MovingOptions options_;
  at::ScalarType precision_;  // what statistics are held in
  std::unique_ptr<PassUpdate> update_;
  std::shared_ptr<MovingState> state_;
  kernels::MovingWindows* windows_ = nullptr;
  kernels::MovingForward moving_;
};

}  // namespace

MovingNorm::MovingNorm(const NormSite& site, std::shared_ptr<const Rules> rules,
                       const kernels::MovingOptions& options, int64_t window,
                       const Strategy::Context& context)
    : site_(site), rules_(std::move(rules)), options_(options) {
  const auto statistics = at::TensorOptions().device(context.device).dtype(statistics_type(context.dtype));
  if (rules_->affine) {
    weight_ = register_parameter("weight", at::ones({site.channels}, statistics));
    bias_ = register_parameter("bias", at::zeros({site.channels}, statistics));
  }
  const at::Tensor mean = register_buffer("running_mean", at::zeros({site.channels}, statistics));
  const at::Tensor var = register_buffer("running_var", at::ones({site.channels}, statistics));
  statistics_ = std::make_shared<SiteStatistics>(rules_, context, mean, var);
  const auto towers = static_cast<int64_t>(context.samples_per_tower.size()) / context.statistics.size();
  state_ = std::make_shared<MovingState>(towers, window, site.channels, statistics);
}

at::Tensor MovingNorm::forward(at::Tensor x, at::Tensor residual, const Pass& pass) {
  const bool by_batch =
      pass.mode == Mode::train || pass.mode == Mode::calibrate || pass.mode == Mode::evaluate_batch;
  if (!by_batch) {
    return apply_norm(x, residual, weight_, bias_, site_.activation,
                      running_pass(x, pass, rules_, statistics_), pass);
  }
  if (pass.micro_batch.update == UpdateAt::end_of_step && pass.micro_batch.count > 1) {
    throw Error(Error::Kind::refused,
                "statistics_per: " + rules_->strategy +
                    " writes its running statistics in every micro-batch, since they correct the next one; "
                    "expected \"micro_batch\"");
  }
  const Sets towers = sets_of(pass.towers, pass.rows_per_sample, positions_of(x), /*virtual_batch=*/0);
  return apply_norm(
      x, residual, weight_, bias_, site_.activation,
      c10::make_intrusive<MovingPass>(towers, rules_, options_, statistics_->mean().scalar_type(),
                                      update_of(pass, towers, positions_of(x), rules_, statistics_),
                                      pass.mode == Mode::train ? state_ : nullptr),
      pass);
}

}  // namespace bnlab
