#include "harness/training/loss.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "harness/communicator/world.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab {
namespace {

std::vector<double> weights(LossMean mean, bool may_have_void, const at::Tensor& class_weights = {}) {
  const auto world = join_world({}, at::kCPU);
  // Three towers: one sample, none, two samples; with void 1, 0 and 3 valid labels.
  at::Tensor labels = at::zeros({3, 1, 2}, at::kLong);  // [samples, 1, 2]
  if (may_have_void) {
    labels[0][0][0] = Task::kVoid;
    labels[2][0][1] = Task::kVoid;
  }
  const Batch batch{at::zeros({3, 3, 1, 2}), labels, Towers({1, 0, 2}, 1, 0)};
  LossWeights loss_weights(batch, labels,
                           {.mean = mean,
                            .may_have_void = may_have_void,
                            .communicator = world->gradients(),
                            .weights = at::TensorOptions(at::kDouble)},
                           class_weights);
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

TEST(LossWeights, LabelsCountAsMuchAsTheirClass) {
  const at::Tensor of_class_0 = at::full({1}, 0.125, at::kDouble);  // less than one label in all
  EXPECT_EQ(weights(LossMean::batch, true, of_class_0), (std::vector<double>{2, 2, 2}));
  EXPECT_EQ(weights(LossMean::tower, true, of_class_0), (std::vector<double>{4, 0, 4. / 3}));
  EXPECT_EQ(weights(LossMean::batch, false, at::full({1}, 2, at::kDouble)),
            (std::vector<double>{1. / 12, 1. / 12, 1. / 12}));
}

}  // namespace
}  // namespace bnlab
