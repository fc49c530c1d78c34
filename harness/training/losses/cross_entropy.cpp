// cross_entropy: softmax cross-entropy over all labels that are not void, with PyTorch's label smoothing and
// class weights. With p the probabilities, y a label's class, K the classes, w their weights and s the
// smoothing:
//   loss of a label = -(1 - s) w[y] log p[y] - s / K sum over classes k of w[k] log p[k]
//   mean = sum of the labels' losses / sum of their w[y]
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/support/error.hpp"
#include "harness/support/upload.hpp"
#include "harness/training/loss.hpp"

namespace bnlab::cross_entropy {

class CrossEntropy : public Loss {
 public:
  struct Options {
    double label_smoothing = 0;
    std::optional<std::vector<double>> class_weights;

    void describe(OptionVisitor& option) {
      option("label_smoothing", label_smoothing, "share of the target that is spread over all classes")
          .at_least(0)
          .below(1);
      option("class_weights", class_weights, "one per class; the mean is weighted; null: all count alike")
          .at_least(0)
          .not_empty();
    }

    void check(const RunOutline&, Problems& problems) const {
      if (class_weights && std::ranges::max(*class_weights) == 0)
        problems.add("class_weights", "expected a number above 0 among them");
    }
  };

  CrossEntropy(const Options& options, const Context& context)
      : Loss(context), kind_({.class_weights = {}, .label_smoothing = options.label_smoothing}) {
    if (!options.class_weights) return;
    if (const auto given = static_cast<int64_t>(options.class_weights->size()); given != context.classes) {
      throw Error(Error::Kind::refused,
                  "task.loss.class_weights: expected " + std::to_string(context.classes) +
                      " numbers, one for each class of the task, got " + std::to_string(given));
    }
    kind_.class_weights = uploaded(*options.class_weights, context.weights.device());
  }

  OfOutputs begin(const Batch& batch) override {
    const auto weights = std::make_shared<LossWeights>(batch, batch.labels, context_, kind_.class_weights);
    return [weights, kind = kind_](const at::Tensor& outputs, const Batch& passed) {
      return weighted_cross_entropy(outputs, passed.labels, passed.towers.local_offsets(), weights->get(),
                                    kind);
    };
  }

 private:
  CrossEntropyKind kind_;
};

const Registered<Loss> entry{{.name = "cross_entropy",
                              .summary = "softmax cross-entropy over all labels that are not void",
                              .source = "label smoothing: Szegedy et al., CVPR 2016"},
                             make<Loss, CrossEntropy>};

}  // namespace bnlab::cross_entropy
