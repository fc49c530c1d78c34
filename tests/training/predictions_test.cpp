// Predictions crop by crop: that of a pixel is the mean over all crops that show it.
#include "harness/training/predictions.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

// A network that looks at each pixel by itself: two classes, by the first channel.
at::Tensor pointwise(const at::Tensor& images) {
  const at::Tensor first = images.narrow(1, 0, 1);
  return at::cat({first, -first}, 1);
}

at::Tensor probabilities_of(const at::Tensor& images) {
  return pointwise(images).to(at::kFloat).softmax(1);
}

at::Tensor some_images(int64_t height, int64_t width) {
  at::manual_seed(1);
  return at::randn({2, 3, height, width});
}

TEST(Predictions, InOnePieceAreTheLogits) {
  const at::Tensor x = some_images(9, 14);
  EXPECT_TRUE(predictions({}, x, pointwise).equal(pointwise(x)));
}

TEST(Predictions, CropsOfAPointwiseNetworkChangeNothing) {
  for (const auto& [height, width] :
       {std::array{8, 8}, std::array{9, 14}, std::array{23, 31}, std::array{5, 20}}) {
    SCOPED_TRACE(height);
    const at::Tensor x = some_images(height, width);
    for (const double stride : {1.0, 2.0 / 3, 0.3}) {
      const at::Tensor got = predictions({.crop = {{8, 8}}, .stride = stride}, x, pointwise);
      EXPECT_TRUE(at::allclose(got, probabilities_of(x), 1e-5, 1e-6)) << stride;
    }
    EXPECT_TRUE(at::allclose(predictions({.flip = true}, x, pointwise), probabilities_of(x), 1e-5, 1e-6));
  }
}

TEST(Predictions, EveryCropHasItsSizeAndTheLastOneEndsAtTheEdge) {
  const at::Tensor rows = at::arange(19, at::kFloat).view({1, 1, 19, 1}).expand({2, 3, 19, 10});
  std::vector<int64_t> tops;
  predictions({.crop = {{8, 10}}, .stride = 0.5}, rows, [&](const at::Tensor& x) {
    EXPECT_EQ(x.sizes().vec(), (std::vector<int64_t>{2, 3, 8, 10}));
    tops.push_back(static_cast<int64_t>(x[0][0][0][0].item<float>()));
    return pointwise(x);
  });
  EXPECT_EQ(tops, (std::vector<int64_t>{0, 4, 8, 11}));
}

TEST(Predictions, OverlappingCropsAreAveraged) {
  int crops = 0;
  const at::Tensor got =
      predictions({.crop = {{8, 8}}, .stride = 0.5}, at::zeros({1, 3, 8, 12}), [&](const at::Tensor& x) {
        const double logit =
            crops++ == 0 ? 40 : -40;  // of the first class: certain in the left crop, impossible in the right
        return at::cat(
            {at::full({1, 1, x.size(2), x.size(3)}, logit), at::zeros({1, 1, x.size(2), x.size(3)})}, 1);
      });
  ASSERT_EQ(crops, 2);
  const at::Tensor first = got[0][0][0];
  EXPECT_NEAR(first[0].item<double>(), 1, 1e-6);
  EXPECT_NEAR(first[5].item<double>(), 0.5, 1e-6);
  EXPECT_NEAR(first[11].item<double>(), 0, 1e-6);
}

TEST(Predictions, ScalesAreSeenAndAveraged) {
  std::vector<int64_t> heights;
  const at::Tensor x = at::full({1, 3, 10, 20}, 0.3);
  const at::Tensor got = predictions({.scales = {0.5, 1, 1.75}}, x, [&](const at::Tensor& images) {
    heights.push_back(images.size(2));
    return pointwise(images);
  });
  EXPECT_EQ(heights, (std::vector<int64_t>{5, 10, 18}));
  EXPECT_TRUE(at::allclose(got, probabilities_of(x), 1e-5, 1e-6));
}

// A whole run, on one rank and two.
TEST(Predictions, OfARunDoNotDependOnThePlacement) {
  TrainingRuns runs;
  const Json evaluation = {{"crop", {8, 8}}, {"flip", true}, {"scales", {1, 1.5}}};
  const RunSpec spec = TrainingRuns::spec({{"strategy", "sync"}, {"evaluation", evaluation}});
  const Json cropped = runs.run(spec, 1).result.at("final");
  EXPECT_EQ(cropped, runs.run(spec, 2).result.at("final"));
  EXPECT_NE(cropped, runs.run(TrainingRuns::spec({{"strategy", "sync"}}), 1).result.at("final"));
}

}  // namespace
}  // namespace bnlab
