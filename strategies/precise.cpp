// precise: trains as its base. Before an evaluation the running statistics are recomputed by forward passes
// over training batches and merged exactly over batches and towers (PreciseBN; Wu and Johnson 2021). The pair
// that training updates is kept apart and comes back afterwards.
#include "strategies/engine/wrapper.hpp"

namespace bnlab::precise {

class Precise : public Wrapper {
 public:
  struct Options : WrapperOptions {
    int64_t batches = 20;

    void describe(OptionVisitor& option) {
      option("batches", batches, "training batches to recompute over").at_least(1);
      WrapperOptions::describe(option);
    }
  };

  // With weight_ema the statistics for the averaged weights are recomputed too; no average of pairs is used.
  Precise(const Options& options, const Context& context) : Wrapper(options, context) {
    running_statistics()->saved = {.kind = Population::Kind::precise, .batches = options.batches};
  }
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
     .use = "when running averages lag behind the weights: few steps, a large momentum or learning rate, "
            "towers that see different data",
     .limits = "every evaluation costs `batches` forward passes; training itself stays that of the base"},
    make<Strategy, Precise>};

}  // namespace bnlab::precise
