// dice: one minus the mean soft Dice coefficient (Milletari, Navab, Ahmadi, 3DV 2016) of the classes that the
// labels show. cross_entropy_dice: the cross-entropy and, times dice_weight, this. With p the probabilities
// and y the labels as 0 and 1, over the pixels that are not void of an image, of a tower or of the global
// batch:
//   dice of class c = 2 sum of p[c] y[c] / (sum of p[c] + sum of y[c])
// Images with a valid label count as pixels do in cross_entropy (loss_mean), towers with one alike. What
// shares a tower or the batch changes the dice of all, as in batch norm; that of the batch is exchanged.
#include <torch/types.h>

#include <memory>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/tasks/task.hpp"
#include "harness/training/loss.hpp"

namespace bnlab::dice {
namespace {

BNLAB_CHOICE(Over, image, tower, batch)

struct DiceOptions {
  Over over = Over::image;

  void describe(OptionVisitor& option) {
    option("over", over, "whose pixels one coefficient is of: an image's, a tower's or the global batch's");
  }

  void check(const RunOutline& run, Problems& problems) const {
    if (run.passes_per_step > 1 && over != Over::image) {
      problems.add("over",
                   "a coefficient of several images needs all of them at once: expected \"image\" with "
                   "accumulate " +
                       std::to_string(run.passes_per_step));
    }
  }
};

struct CrossEntropyDiceOptions : DiceOptions {
  double dice_weight = 1;

  void describe(OptionVisitor& option) {
    DiceOptions::describe(option);
    option("dice_weight", dice_weight, "what the dice counts beside the cross-entropy").above(0).at_most(1e6);
  }
};

// What the coefficients are made of, by image and class: [3, n, classes] for p y, p and y. outputs: [n,
// classes, ...], labels: [n, ...]. In float32, or float64 for float64 outputs.
at::Tensor sums_of_images(const at::Tensor& outputs, const at::Tensor& labels) {
  const auto type = outputs.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor class_of = labels.unsqueeze(1).unsqueeze(-1).flatten(2);  // [n, 1, labels of an image]
  const at::Tensor valid = class_of.ne(Task::kVoid).to(type);
  const at::Tensor p = outputs.to(type).softmax(1).unsqueeze(-1).flatten(2) * valid;
  const at::Tensor y = at::zeros_like(p).scatter(1, class_of.clamp_min(0), valid);
  return at::stack({(p * y).sum(2), p.sum(2), y.sum(2)});
}

// One minus the mean over the classes with labels: of sums [3, n, classes] the n losses. 0 without labels.
at::Tensor losses_of(const at::Tensor& sums) {
  const at::Tensor shown = sums[2] > 0;
  const at::Tensor of_class = 2 * sums[0] / (sums[1] + sums[2]).masked_fill(shown.logical_not(), 1);
  const at::Tensor classes = shown.sum(1);
  return (1 - of_class.sum(1) / classes.clamp_min(1)) * (classes > 0);
}

class Dice : public Loss {
 public:
  using Options = DiceOptions;

  Dice(const Options& options, const Context& context) : Loss(context), over_(options.over) {
    context_.may_have_void = true;  // the number of images with labels is exchanged
  }

  OfOutputs begin(const Batch& batch) override {
    if (over_ == Over::batch)
      return [this](const at::Tensor& outputs, const Batch& passed) { return of_batch(outputs, passed); };
    const auto weights = std::make_shared<LossWeights>(batch, counted(batch), context_);
    return [this, weights](const at::Tensor& outputs, const Batch& passed) {
      const std::vector<int64_t> offsets = passed.towers.local_offsets();
      at::Tensor sums = sums_of_images(outputs, passed.labels), weight = weights->get();  // [towers]
      std::vector<at::Tensor> of_towers;
      for (size_t t = 0; t + 1 < offsets.size(); ++t) {
        const int64_t first = offsets[t], end = offsets[t + 1];
        of_towers.push_back(over_ == Over::tower ? sums.slice(1, first, end).sum(1, /*keepdim=*/true)
                                                 : weight[static_cast<int64_t>(t)].expand({end - first}));
      }
      (over_ == Over::tower ? sums : weight) = at::cat(of_towers, over_ == Over::tower ? 1 : 0);
      const at::Tensor unlabelled = sums[2].sum(1) == 0;  // whose weight may be infinite
      return (losses_of(sums) * weight.masked_fill(unlabelled, 0)).sum();
    };
  }

 private:
  // A label for each thing that counts once, and void elsewhere, [n]: an image with labels, or the first
  // image of a tower with some.
  at::Tensor counted(const Batch& batch) const {
    at::Tensor labelled = batch.labels.ne(Task::kVoid).unsqueeze(-1).flatten(1).any(1);
    if (over_ == Over::tower) {
      const at::Tensor images = labelled;
      const std::vector<int64_t> offsets = batch.towers.local_offsets();
      labelled = at::zeros_like(images);
      for (size_t t = 0; t + 1 < offsets.size(); ++t)
        if (offsets[t] < offsets[t + 1])
          labelled[offsets[t]].copy_(images.slice(0, offsets[t], offsets[t + 1]).any());
    }
    return at::zeros_like(labelled, at::kLong).masked_fill(labelled.logical_not(), Task::kVoid);
  }

  // The value is the whole batch's on every rank. The gradient is this rank's share times the number of
  // ranks, over which gradients are averaged.
  at::Tensor of_batch(const at::Tensor& outputs, const Batch& batch) const {
    const at::Tensor own = sums_of_images(outputs, batch.labels).sum(1, /*keepdim=*/true);
    at::Tensor all = own.detach().to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
    context_.communicator.all_reduce_async(all, Purpose::loss)->wait();
    const at::Tensor shares = own * static_cast<double>(context_.communicator.size());
    return losses_of(shares + (all - shares).detach()).sum().to(own.scalar_type());
  }

  Over over_;
};

class CrossEntropyDice : public Dice {
 public:
  using Options = CrossEntropyDiceOptions;

  CrossEntropyDice(const Options& options, const Context& context)
      : Dice(options, context), pixels_(context), weight_(options.dice_weight) {}

  OfOutputs begin(const Batch& batch) override {
    const auto weights = std::make_shared<LossWeights>(batch, batch.labels, pixels_);
    return [weights, weight = weight_, dice = Dice::begin(batch)](const at::Tensor& outputs,
                                                                  const Batch& passed) {
      return weighted_cross_entropy(outputs, passed.labels, passed.towers.local_offsets(), weights->get()) +
             weight * dice(outputs, passed);
    };
  }

 private:
  Context pixels_;
  double weight_;
};

const Registered<Loss> entries[] = {
    {{.name = "dice",
      .summary = "one minus the soft Dice coefficient of images, towers or the global batch",
      .source = "Milletari, Navab, Ahmadi, 3DV 2016"},
     make<Loss, Dice>},
    {{.name = "cross_entropy_dice",
      .summary = "cross-entropy and dice, added",
      .source = "as in nnU-Net, Isensee et al., Nature Methods 2021"},
     make<Loss, CrossEntropyDice>}};

}  // namespace
}  // namespace bnlab::dice
