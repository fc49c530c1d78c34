// Resizing of maps.
#include <gtest/gtest.h>

#include "harness/models/resize.hpp"

namespace bnlab::resize_test {
namespace {

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
}  // namespace bnlab::resize_test
