#include "harness/training/loss_weights.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "harness/communicator/world.hpp"

namespace bnlab {
namespace {

// Labels of shape [samples, 1, 2]; nothing but what LossWeights asks for.
class Labels : public Task {
 public:
  explicit Labels(bool may_have_void) : may_have_void_(may_have_void) {}
  int64_t classes() const override { return 2; }
  std::array<int64_t, 2> training_image_size() const override { return {1, 2}; }
  std::array<int64_t, 2> test_image_size() const override { return {1, 2}; }
  int64_t training_samples() const override { return 0; }
  int64_t test_samples() const override { return 0; }
  bool may_have_void() const override { return may_have_void_; }
  Examples training(const std::vector<Draw>&) const override { return {}; }
  Examples test(int64_t, int64_t) const override { return {}; }
  at::Tensor valid_counts(const at::Tensor& labels, const std::vector<int64_t>& offsets) const override {
    at::Tensor counts = at::zeros({static_cast<int64_t>(offsets.size()) - 1}, at::kDouble);
    for (size_t g = 0; g + 1 < offsets.size(); ++g) {
      counts[static_cast<int64_t>(g)] = (labels.slice(0, offsets[g], offsets[g + 1]) != kVoid).sum();
    }
    return counts;
  }
  at::Tensor loss(const at::Tensor&, const at::Tensor&, const std::vector<int64_t>&,
                  const at::Tensor&) const override {
    return {};
  }
  at::Tensor measure(const at::Tensor&, const at::Tensor&, int64_t) const override { return {}; }
  Json metrics(const at::Tensor&) const override { return {}; }
  std::string headline() const override { return ""; }

 private:
  bool may_have_void_;
};

std::vector<double> weights(LossMean mean, bool may_have_void) {
  const auto world = join_world({}, at::kCPU);
  // Three towers: one sample, none, two samples; with void 1, 0 and 3 valid labels.
  at::Tensor labels = at::zeros({3, 1, 2}, at::kLong);
  if (may_have_void) {
    labels[0][0][0] = Task::kVoid;
    labels[2][0][1] = Task::kVoid;
  }
  const Batch batch{at::zeros({3, 3, 1, 2}), labels, Towers({1, 0, 2}, 1, 0)};
  const Labels task(may_have_void);
  LossWeights loss_weights(task, batch, mean, world->gradients(), at::TensorOptions(at::kDouble));
  const at::Tensor w = loss_weights.get().contiguous();
  return {w.const_data_ptr<double>(), w.const_data_ptr<double>() + w.numel()};
}

TEST(LossWeights, MeanOverTheBatchIsOneOverItsValidLabels) {
  EXPECT_EQ(weights(LossMean::batch, false), (std::vector<double>{1. / 6, 1. / 6, 1. / 6}));
  EXPECT_EQ(weights(LossMean::batch, true), (std::vector<double>{1. / 4, 1. / 4, 1. / 4}));
}

TEST(LossWeights, MeanOverTowersLeavesOutTowersWithoutValidLabels) {
  // two towers have labels: 1/2 of the mean of each
  EXPECT_EQ(weights(LossMean::tower, false), (std::vector<double>{1. / 4, 0, 1. / 8}));
  EXPECT_EQ(weights(LossMean::tower, true), (std::vector<double>{1. / 2, 0, 1. / 6}));
}

}  // namespace
}  // namespace bnlab
