// Dropout: what its masks depend on, and what they do not. Maps brought to other sizes.
#include "harness/models/building_blocks.hpp"

#include <gtest/gtest.h>

namespace bnlab::building_blocks_test {
namespace {

const Dropout kElements{"head.3", 0.25};

// Two towers with three samples each, of which a rank has one tower or both.
Pass pass_of(int ranks, int rank, int64_t step = 7, Mode mode = Mode::train) {
  Pass pass{Towers({3, 3}, ranks, rank), 1, {step, 10}, mode};
  pass.details.seed = 5;
  return pass;
}

at::Tensor ones(int64_t rows) {
  return at::ones({rows, 8, 5, 6});
}

TEST(Dropout, DropsItsShareAndKeepsTheMean) {
  const at::Tensor y = dropout(at::ones({6, 32, 20, 20}), kElements, pass_of(1, 0));
  EXPECT_NEAR(y.eq(0).to(at::kDouble).mean().item<double>(), 0.25, 0.01);
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.02);
}

TEST(Dropout, DropsWholeChannels) {
  const at::Tensor y = dropout(at::ones({6, 64, 5, 5}), {"head.3", 0.5, true}, pass_of(1, 0));
  EXPECT_TRUE(at::equal(y, y.slice(2, 0, 1).slice(3, 0, 1).expand_as(y)));
  EXPECT_NEAR(y.eq(0).to(at::kDouble).mean().item<double>(), 0.5, 0.1);
}

TEST(Dropout, DependsOnSeedStepRowAndPlaceInTheNetwork) {
  const at::Tensor y = dropout(ones(6), kElements, pass_of(1, 0));
  EXPECT_TRUE(at::equal(y, dropout(ones(6), kElements, pass_of(1, 0))));
  EXPECT_FALSE(at::equal(y[0], y[1]));
  EXPECT_FALSE(at::equal(y, dropout(ones(6), kElements, pass_of(1, 0, 8))));
  EXPECT_FALSE(at::equal(y, dropout(ones(6), {"head.4", 0.25}, pass_of(1, 0))));
  EXPECT_FALSE(at::equal(y, dropout(ones(6), kElements, pass_of(1, 0, 7, Mode::calibrate))));
  Pass other = pass_of(1, 0);
  other.details.seed = 6;
  EXPECT_FALSE(at::equal(y, dropout(ones(6), kElements, other)));
}

TEST(Dropout, DoesNotDependOnThePlacement) {
  const at::Tensor one = dropout(ones(6), kElements, pass_of(1, 0));
  EXPECT_TRUE(at::equal(one.narrow(0, 3, 3), dropout(ones(3), kElements, pass_of(2, 1))));
}

TEST(Dropout, GoesWithARowThatAStrategyHasMoved) {
  const at::Tensor in_order = dropout(ones(6), kElements, pass_of(1, 0));
  Pass moved = pass_of(1, 0);
  moved.details.rows = {4, 0, 5, 1, 3, 2};
  EXPECT_TRUE(at::equal(in_order[4], dropout(ones(6), kElements, moved)[0]));
}

TEST(Dropout, LeavesEvaluationAlone) {
  for (const Mode mode : {Mode::evaluate_saved, Mode::evaluate_batch})
    EXPECT_TRUE(at::equal(ones(6), dropout(ones(6), kElements, pass_of(1, 0, 7, mode))));
}

// 1/0.9 is 1.109 in bfloat16: twice nothing may be rounded to that.
TEST(Dropout, ScalesExactlyInLowPrecision) {
  const at::Tensor y =
      dropout(at::full({6, 64, 20, 20}, 9).to(at::kBFloat16), {"head.3", 0.1}, pass_of(1, 0));
  EXPECT_EQ(y.max().item<float>(), 10);
}

TEST(Dropout, TakesRowsInAnyPrecision) {
  for (const auto type : {at::kDouble, at::kBFloat16})
    EXPECT_EQ(dropout(ones(6).to(type), kElements, pass_of(1, 0)).scalar_type(), type);
}

constexpr Resizing kAll[] = {Resizing::nearest, Resizing::bilinear, Resizing::bilinear_corners};

at::Tensor maps(int64_t height, int64_t width, at::MemoryFormat layout = at::MemoryFormat::ChannelsLast) {
  at::manual_seed(static_cast<uint64_t>(height));
  return at::randn({2, 3, height, width}, at::kDouble).contiguous(layout);
}

// A map of one position is contiguous in both layouts; what stands beside it in a concatenation decides.
TEST(Resized, HasTheLayoutOfTheMapWhoseSizeItTakes) {
  for (const auto layout : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
    for (const Resizing how : kAll) {
      for (const int64_t size : {1, 3}) {
        const at::Tensor y = resized(maps(size, size, layout), maps(6, 7, layout), how);
        EXPECT_TRUE(y.is_contiguous(layout)) << size;
        EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 3, 6, 7}));
      }
    }
  }
}

TEST(Resized, OnePositionIsCopiedAndItsGradientSummed) {
  for (const Resizing how : kAll) {
    const at::Tensor x = maps(1, 1).requires_grad_();
    const at::Tensor y = resized(x, maps(4, 5), how);
    EXPECT_TRUE(at::equal(y, x.expand({2, 3, 4, 5})));
    const at::Tensor g = maps(4, 5);
    y.backward(g);
    EXPECT_LT((x.grad() - g.sum({2, 3}, true)).abs().max().item<double>(), 1e-12);
  }
}

TEST(Resized, CornersMeetCornersOrEdgesMeetEdges) {
  const at::Tensor x = at::tensor({0.0, 1.0}).to(at::kDouble).view({1, 1, 1, 2});
  const at::Tensor like = at::zeros({1, 1, 1, 4}, at::kDouble);
  const auto row = [&](Resizing how) { return resized(x, like, how).view({4}); };
  const auto expected = [](std::vector<double> values) { return at::tensor(values, at::kDouble); };
  EXPECT_TRUE(at::allclose(row(Resizing::nearest), expected({0, 0, 1, 1})));
  EXPECT_TRUE(at::allclose(row(Resizing::bilinear), expected({0, 0.25, 0.75, 1})));
  EXPECT_TRUE(at::allclose(row(Resizing::bilinear_corners), expected({0, 1. / 3, 2. / 3, 1})));
}

TEST(CellMeans, AreMeansOfOverlappingParts) {
  const at::Tensor x = maps(5, 7);
  EXPECT_TRUE(at::allclose(cell_means(x, 1), x.mean({2, 3}, true)));
  const at::Tensor corner = x.slice(2, 2).slice(3, 3).mean({2, 3});  // rows 2 to 4, columns 3 to 6
  EXPECT_TRUE(at::allclose(cell_means(x, 2).select(3, 1).select(2, 1), corner));
}

TEST(CellMeans, OfNoRowsAreNone) {
  const at::Tensor none = maps(5, 7).slice(0, 0, 0).requires_grad_();
  for (const int64_t cells : {1, 2}) {
    const at::Tensor y = resized(cell_means(none, cells), none, Resizing::bilinear_corners);
    EXPECT_EQ(y.sizes(), (at::IntArrayRef{0, 3, 5, 7}));
    y.sum().backward();
    EXPECT_EQ(none.grad().sizes(), none.sizes());
  }
}

TEST(CellMeans, TheGradientHasTheLayoutOfTheMap) {
  for (const auto layout : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::Contiguous}) {
    for (const int64_t cells : {1, 2, 6}) {
      const at::Tensor leaf = maps(5, 7, layout).requires_grad_();
      const at::Tensor x = leaf * 2;
      at::Tensor gradient;
      x.register_hook([&](const at::Tensor& g) { gradient = g; });
      cell_means(x, cells).pow(2).sum().backward();
      EXPECT_TRUE(gradient.is_contiguous(layout)) << cells;
    }
  }
}

}  // namespace
}  // namespace bnlab::building_blocks_test
