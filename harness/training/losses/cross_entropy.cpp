// cross_entropy: softmax cross-entropy over all labels that are not void.
#include <memory>

#include "harness/components/registry.hpp"
#include "harness/training/loss.hpp"

namespace bnlab {
namespace {

class CrossEntropy : public Loss {
 public:
  struct Options {
    void describe(OptionVisitor&) {}
  };

  CrossEntropy(const Options&, const Context& context) : Loss(context) {}

  OfOutputs begin(const Batch& batch) override {
    const auto weights = std::make_shared<LossWeights>(batch, batch.labels, context_);
    return
        [labels = batch.labels, offsets = batch.towers.local_offsets(), weights](const at::Tensor& outputs) {
          return weighted_cross_entropy(outputs, labels, offsets, weights->get());
        };
  }
};

const Registered<Loss> entry{
    {.name = "cross_entropy", .summary = "softmax cross-entropy over all pixels that are not void"},
    make<Loss, CrossEntropy>};

}  // namespace

}  // namespace bnlab
