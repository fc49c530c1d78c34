// ohem: online hard-example mining, pixel by pixel as segmentation code does it. Softmax cross-entropy over
// the valid pixels that each tower by itself finds hardest: those whose true class has at most the
// probability
//   p = max(threshold, the k-th smallest probability in the tower), k = min_kept * images of the tower
// (Shrivastava, Gupta, Girshick, CVPR 2016)
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/tasks/task.hpp"
#include "harness/training/loss.hpp"

namespace bnlab::ohem {
namespace {

class Ohem : public Loss {
 public:
  struct Options {
    double threshold = 0.7;
    int64_t min_kept = 256;

    void describe(OptionVisitor& option) {
      option("threshold", threshold, "pixels whose true class is at most this probable are kept")
          .above(0)
          .at_most(1);
      option("min_kept", min_kept, "pixels per image that a tower keeps at least, its hardest")
          .at_least(0)
          .at_most(1e9);
    }

    void check(const RunOutline& run, Problems& problems) const {
      if (run.passes_per_step > 1) {
        problems.add("name",
                     "ohem chooses labels by the outputs, so that their number, by which the loss is "
                     "divided, is not known before the last pass of a step; expected accumulate 1 "
                     "beside it, got " +
                         std::to_string(run.passes_per_step));
      }
    }
  };

  Ohem(const Options& options, const Context& context) : Loss(context), options_(options) {
    context_.may_have_void = true;  // labels that are not chosen become void
  }

  // Only the outputs tell which labels count, so the exchange of their number cannot start earlier.
  OfOutputs begin(const Batch& /*batch*/) override {
    return [this](const at::Tensor& outputs, const Batch& batch) {
      const std::vector<int64_t> offsets = batch.towers.local_offsets();
      const at::Tensor labels = hardest(outputs.detach(), batch.labels, offsets);
      return weighted_cross_entropy(outputs, labels, offsets, LossWeights(batch, labels, context_).get());
    };
  }

 private:
  // The labels with those not chosen set to void.
  at::Tensor hardest(const at::Tensor& outputs, const at::Tensor& labels,
                     const std::vector<int64_t>& offsets) const {
    const at::NoGradGuard no_grad;
    // Logarithms of the true class's probability; 0 for void, which is thus never harder than a valid pixel.
    const auto ease = cross_entropy_of_labels(outputs, labels).neg();
    at::Tensor chosen = labels.clone();
    for (size_t g = 0; g + 1 < offsets.size(); ++g) {
      const auto slice = ease.slice(0, offsets[g], offsets[g + 1]);
      const int64_t least = std::min(options_.min_kept * (offsets[g + 1] - offsets[g]), slice.numel());
      at::Tensor limit = at::full({}, std::log(options_.threshold), slice.options());
      if (least > 0) limit = at::maximum(limit, std::get<0>(slice.flatten().kthvalue(least)));
      chosen.slice(0, offsets[g], offsets[g + 1]).masked_fill_(slice.gt(limit), Task::kVoid);
    }
    return chosen;
  }

  Options options_;
};

const Registered<Loss> entry{
    {.name = "ohem",
     .summary = "online hard-example mining: cross-entropy over the pixels that each tower finds hardest",
     .source = "Shrivastava, Gupta, Girshick, CVPR 2016; pixel by pixel, as segmentation code does it"},
    make<Loss, Ohem>};

}  // namespace
}  // namespace bnlab::ohem
