// cmbn: cross mini-batch normalisation, for training that accumulates gradients over the micro-batches of a
// step (spec key accumulate). Every tower normalises its k-th micro-batch by the moments of its first k
// together; those of the earlier ones are constants. So the last passes of a step have better statistics than
// a micro-batch of its own would give, and nothing is exchanged. With one micro-batch per step it is
// per_tower. (Bochkovskiy, Wang and Liao 2020: YOLOv4)
#include "strategies/engine/bn_strategy.hpp"
#include "strategies/engine/exchange/route.hpp"
#include "strategies/engine/running_pass.hpp"

namespace bnlab::cmbn {

// A micro-batch, normalised with those of its step before it, whose moments are `so_far`.
class MicroBatchPass : public NormPass {
 public:
  MicroBatchPass(const std::string& site, const Sets& sets, const MicroBatch& micro_batch,
                 std::shared_ptr<const Rules> rules, std::unique_ptr<PassUpdate> update,
                 std::shared_ptr<PassesOfStep> so_far)
      : NormPass(sets.offsets),
        site_(site),
        micro_batch_(micro_batch),
        rules_(std::move(rules)),
        update_(std::move(update)),
        so_far_(std::move(so_far)) {}

  kernels::Coefficients forward(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& bias) override {
    const kernels::NormOptions options{.eps = rules_->eps, .weight = weight, .bias = bias};
    at::Tensor local;  // [G, 1 + 2C]
    if (micro_batch_.is_first()) {
      kernels::LocalForward first = kernels::local_forward(x, offsets(), options, update_->begin());
      local = first.rows;
      forward_ = first.coefficients;
      so_far_->add(local, micro_batch_);
    } else {
      local = kernels::moments(x, offsets());
      so_far_->add(local, micro_batch_);
      const at::Tensor rows = so_far_->rows();
      const kernels::PooledRows passes{.rows = rows,
                                       .layout = kernels::PooledLayout::passes,
                                       .group = rows.size(0) / local.size(0),
                                       .sets = local.size(0)};
      forward_ = kernels::pooled_forward(passes, rules_->merge, options, statistics_type(x.scalar_type()),
                                         update_->begin());
    }
    const PassesOfStep* so_far = micro_batch_.is_first() ? nullptr : so_far_.get();
    at_site(site_, "forward", [&] { update_->remember({.local = local, .so_far = so_far}); });
    if (micro_batch_.is_last()) so_far_->clear();
    return forward_;
  }

  kernels::BackwardCoefficients backward(const kernels::Incoming& incoming,
                                         const at::Tensor& weight) override {
    return kernels::local_backward(incoming, forward_, /*through_moments=*/true, /*mean_only=*/false, weight);
  }

  NormFormula formula(const at::Tensor& x) const override {
    if (!micro_batch_.is_first()) refuse_second_derivative(rules_->strategy, site_);
    return batch_formula(x, *rules_, offsets(), forward_, /*unbiased=*/{},
                         [](const at::Tensor& parts) { return parts; });
  }

 private:
  std::string site_;
  MicroBatch micro_batch_;
  std::shared_ptr<const Rules> rules_;
  std::unique_ptr<PassUpdate> update_;
  std::shared_ptr<PassesOfStep> so_far_;
};

class CmbnLayer : public BnLayer {
 public:
  using BnLayer::BnLayer;

 protected:
  c10::intrusive_ptr<NormPass> batch_pass(const at::Tensor& x, const Pass& pass) override {
    if (pass.mode == Mode::evaluate_batch) return BnLayer::batch_pass(x, pass);
    const Sets sets = sets_of(pass.towers, pass.rows_per_sample, positions_of(x), /*virtual_batch=*/0);
    check_pass(name(), *rules(), pass, sets);
    return c10::make_intrusive<MicroBatchPass>(name(), sets, pass.micro_batch, rules(),
                                               update_of(pass, sets, positions_of(x), rules(), statistics()),
                                               pass.mode == Mode::calibrate ? calibrating_ : training_);
  }

 private:
  // Passes that calibrate keep theirs apart: they may come in the middle of a step.
  std::shared_ptr<PassesOfStep> training_ = std::make_shared<PassesOfStep>();
  std::shared_ptr<PassesOfStep> calibrating_ = std::make_shared<PassesOfStep>();
};

struct Options : BnOptions {
  int64_t saved_tower = 0;

  void describe(OptionVisitor& option) {
    option("saved_tower", saved_tower, "tower whose running statistics are saved").at_least(0);
    BnOptions::describe(option);
  }

  void check(const RunOutline& run, Problems& problems) const {
    BnOptions::check(run, problems);
    check_tower("saved_tower", saved_tower, run, problems);
  }

  Rules rules() const {
    Rules rules = shared_rules("cmbn");
    rules.saved_tower = saved_tower;
    return rules;
  }
};

class Cmbn : public BnStrategy {
 public:
  using Options = cmbn::Options;
  Cmbn(const Options& options, const Context& context) : BnStrategy(options.rules(), context) {}
  std::shared_ptr<Layer> norm(const NormSite& site) override { return added<CmbnLayer>(site); }
};

const Registered<Strategy> entry{
    {.name = "cmbn",
     .summary = "every tower normalises by the moments of a step's micro-batches so far",
     .source = "Bochkovskiy, Wang and Liao 2020 (YOLOv4, CmBN)",
     .formula =
         "m_tk, v_tk: of tower t's micro-batches 1 to k of the step together, N_tk values\n"
         "y = gamma (x - m_tk) / sqrt(v_tk + eps) + beta, for micro-batch k\n"
         "dx = gamma s (g - A/N_tk - (x - m_tk) s^2 B/N_tk), A and B over micro-batch k alone\n"
         "running <- (1 - momentum) running + momentum (m_sk, N_sk/(N_sk - 1) v_sk), s = saved_tower,\n"
         "  after every micro-batch, or with statistics_per step after the last alone",
     .exchanges = "none",
     .use = "when gradients are accumulated over micro-batches that are too small to be normalised alone",
     .limits = "without accumulate it is per_tower; a step's first micro-batch is normalised as there"},
    make<Strategy, Cmbn>};

}  // namespace bnlab::cmbn
