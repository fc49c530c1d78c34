// precise: trains as its base. Before an evaluation the running statistics are recomputed by forward passes
// over training batches and merged exactly over batches and towers (PreciseBN; Wu and Johnson 2021). The pair
// that training updates is kept apart and comes back afterwards.
#include "strategies/engine/wrapper.hpp"

namespace bnlab::precise {

// The statistics of the base, but for population `saved`, which is recomputed.
class RecomputedStatistics : public RunningStatistics {
 public:
  // `base` outlives this.
  RecomputedStatistics(RunningStatistics& base, int64_t batches) : base_(base), batches_(batches) {}

  // With weight_ema the statistics for the averaged weights are recomputed too; no average of pairs is used.
  std::vector<double> load_into_buffers(const Population& population, Calibration& calibration) override {
    return base_.load_into_buffers(population.kind == Population::Kind::saved ? saved() : population,
                                   calibration);
  }
  Population saved() const override { return {.kind = Population::Kind::precise, .batches = batches_}; }

  std::vector<at::Tensor> summands() override { return base_.summands(); }
  void load_sums(const std::vector<at::Tensor>& sums) override { base_.load_sums(sums); }
  std::vector<StatisticsUpdate> take_updates() override { return base_.take_updates(); }
  void drop_collected() override { base_.drop_collected(); }
  void restore() override { base_.restore(); }
  void init_from_buffers(int64_t steps) override { base_.init_from_buffers(steps); }
  void freeze() override { base_.freeze(); }
  void update_average(const at::Tensor& decay) override { base_.update_average(decay); }
  void average_replicas() override { base_.average_replicas(); }
  void describe(State& state) override { base_.describe(state); }
  int64_t nonfinite_channels() const override { return base_.nonfinite_channels(); }

 private:
  RunningStatistics& base_;
  int64_t batches_;
};

class Precise : public Wrapper {
 public:
  struct Options : WrapperOptions {
    int64_t batches = 20;

    void describe(OptionVisitor& option) {
      option("batches", batches, "training batches to recompute over").at_least(1);
      WrapperOptions::describe(option);
    }
  };

  Precise(const Options& options, const Context& context)
      : Wrapper(options, context), statistics_(*Wrapper::running_statistics(), options.batches) {}

  RunningStatistics* running_statistics() override { return &statistics_; }

 private:
  RecomputedStatistics statistics_;
};

const Registered<Strategy> entry{
    {.name = "precise",
     .summary = "its base, with running statistics recomputed over training batches before an evaluation",
     .source = "Wu and Johnson 2021 (Rethinking \"Batch\" in BatchNorm), PreciseBN of fvcore",
     .formula = "training as the base\n"
                "before an evaluation, over the towers of `batches` training batches with fixed weights:\n"
                "  m = sum n_i m_i / N, v = (sum M_i + sum n_i (m_i - m)^2) / (N - 1)\n"
                "evaluation: y = gamma (x - m) / sqrt(v + eps) + beta; then the training pair comes back",
     .exchanges = "as the base; before an evaluation: as its forward passes, and 1 for all sites",
     .use =
         "when running averages lag behind the weights: few steps, a small momentum, a large rate, different "
         "data on towers",
     .limits = "every evaluation costs `batches` forward passes; training itself stays that of the base"},
    make<Strategy, Precise>};

}  // namespace bnlab::precise
