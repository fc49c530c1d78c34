// A rank's own step, measured without the others: what it exchanges is what real ranks book.
#include "harness/probe/steps.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/counting/operations.hpp"
#include "harness/probe/probe.hpp"
#include "harness/probe/sites.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::steps_test {
namespace {

class OwnStep : public ::testing::Test {
 protected:
  OwnStep() { prepare_to_measure(1); }

  std::vector<RunSpec> runs(const std::string& keys) {
    const std::filesystem::path file = folder_.path() / "spec.json";
    std::ofstream(file) << R"({"task": {"name": "shapes", "size": [16, 16], "train": 16, "test": 4},
      "model": {"name": "unet", "base": 4, "levels": 2}, "steps": 3, "towers": 6, "batch_per_tower": 2, )"
                        << keys << "}";
    return load_experiment(file.string()).runs;
  }
  RunSpec on(int ranks, const std::string& keys) { return runs_to_measure(runs(keys), ranks).front(); }

  TemporaryFolder folder_;
};

// Collectives and bytes of a step by purpose.
using Books = std::map<std::string, std::pair<double, double>>;

Books books_of(const Json& step) {
  Books books;
  for (const Json& exchange : step.at("exchanges")) {
    auto& [count, bytes] = books[exchange.at("purpose")];
    count += exchange.at("count").get<double>();
    bytes += exchange.at("count").get<double>() * exchange.at("bytes").get<double>();
  }
  return books;
}

TEST_F(OwnStep, ExchangesWhatRealRanksDo) {
  for (const char* strategy :
       {R"("sync")", R"({"name": "sync", "route": "reduce_broadcast"})",
        R"({"name": "sync", "route": "all_reduce"})", R"("per_tower")", R"("shuffle")", R"("averaged")"}) {
    const RunSpec run = on(2, std::string(R"("strategy": )") + strategy);
    const Json own = own_step(run, 2, Device::cpu, "", 0.1);
    ASSERT_FALSE(own.contains("refused")) << own;
    Books real;
    on_thread_ranks(2, at::kCPU, [&](World& world) {
      StepSamples samples;
      measure_steps(run, world, "", 0.1, samples);
      const Json step = row_of(samples);
      if (world.rank() == 0) {
        EXPECT_GT(step.at("together_s").at("samples"), 0);
        real = books_of(step);
        world.ledger().clear();
      }
    });
    EXPECT_EQ(books_of(own), real) << strategy;
    const bool pools = std::string(strategy).find("sync") != std::string::npos;
    EXPECT_EQ(books_of(own).contains("statistics"), pools) << strategy;
    EXPECT_TRUE(books_of(own).contains("gradients")) << strategy;
  }
}

TEST_F(OwnStep, IsMeasuredInRounds) {
  const RunSpec run = on(2, R"("strategy": "sync")");
  on_thread_ranks(2, at::kCPU, [&](World& world) {
    StepSamples samples;
    measure_steps(run, world, "", 0.1, samples);
    const Json first = row_of(samples);
    measure_steps(run, world, "", 0.1, samples);
    const Json both = row_of(samples);
    EXPECT_EQ(both.at("exchanges"), first.at("exchanges"));
    for (const char* times : {"own_s", "together_s"})
      EXPECT_GT(both.at(times).at("samples"), first.at(times).at("samples"));
  });
}

TEST_F(OwnStep, OfOneOfAThousandRanksReceivesTheRowsOfAll) {
  const RunSpec few = on(2, R"("strategy": "sync")"), many = on(1000, R"("strategy": "sync")");
  const Json of_few = own_step(few, 2, Device::cpu, "", 0.1),
             of_many = own_step(many, 1000, Device::cpu, "", 0.1);
  EXPECT_EQ(of_few.at("exchanges"), of_many.at("exchanges")) << "a rank hands over as much";
  EXPECT_EQ(of_many.at("ranks"), 1000);
  EXPECT_GT(of_many.at("peak_memory_bytes"), of_few.at("peak_memory_bytes"));
}

// Small images have other numbers of pixels at every site, and the same sites.
TEST_F(OwnStep, IsCountedOnSmallImages) {
  for (const char* strategy : {R"("per_tower")", R"("sync")",
                               R"({"name": "sync", "route": "gather_activations"})", R"("shuffle")"}) {
    RunSpec run = on(2, std::string(R"("strategy": )") + strategy);
    run.task["size"] = {96, 64};
    const Json measured = own_step(run, 2, Device::cpu, "", 0.1);
    const Json counted = counted_step(run, 2, "", true);
    EXPECT_EQ(counted.at("exchanges"), measured.at("exchanges")) << strategy;
    EXPECT_EQ(counted_step(run, 2, "", false).at("exchanges"), measured.at("exchanges")) << strategy;
    for (const char* part : {"flops", "matrix_bytes", "other_bytes"}) {
      const double expected = measured.at("operations").at(part);
      // Of shuffle's copies some are not in proportion to the images.
      const double share = run.strategy.at("name") == "shuffle" ? 5e-3 : 1e-9;
      EXPECT_NEAR(counted.at("operations").at(part).get<double>(), expected, share * expected) << strategy;
    }
    EXPECT_FALSE(counted.contains("own_s"));
  }
}

TEST_F(OwnStep, IsCountedOnceForNumbersOfRanksThatExchangeAlike) {
  const auto kind = [&](const std::string& strategy, int ranks) {
    return kind_of_exchanges(on(ranks, R"("strategy": )" + strategy), ranks);
  };
  EXPECT_EQ(kind(R"("sync")", 64), kind(R"("sync")", 1024));
  const std::string automatic = R"({"name": "sync", "route": "auto"})";
  EXPECT_NE(kind(automatic, 8), kind(automatic, 64)) << "another route";
  const std::string groups = R"({"name": "sync", "group_size": 2})";
  EXPECT_NE(kind(groups, 2), kind(groups, 3)) << "refused on three";
}

TEST_F(OwnStep, TellsWhyAStrategyRefuses) {
  const RunSpec run = on(3, R"("strategy": {"name": "sync", "group_size": 2})");
  const Json step = own_step(run, 3, Device::cpu, "", 0.1);
  ASSERT_TRUE(step.contains("refused")) << step;
  EXPECT_FALSE(step.contains("own_s"));
}

TEST_F(OwnStep, AveragedWeightsCountAsAShareOfAStep) {
  const RunSpec run = on(2, R"("strategy": "per_tower", "average_weights_every": 3)");
  const Json step = own_step(run, 2, Device::cpu, "", 0.1);
  double count = 0;
  for (const Json& exchange : step.at("exchanges")) count += exchange.at("count").get<double>();
  EXPECT_GT(count, 0);
  EXPECT_LT(count, 1);
}

TEST_F(OwnStep, OneOfEveryCellIsMeasured) {
  const auto chosen = runs_to_measure(
      runs(R"("matrix": {"seed": [0, 1], "model.base": [4, 8], "strategy": ["per_tower", "sync"]})"), 8);
  ASSERT_EQ(chosen.size(), 4U);
  for (const RunSpec& run : chosen) {
    EXPECT_EQ(run.samples_per_tower, std::vector<int64_t>(8, 2));
    EXPECT_EQ(run.seed, 0U);
  }
}

// One convolution of 3x3 from 4 to 8 channels, on 2 images of 16x16: backward computes twice as much.
TEST(Operations, AreThoseOfConvolutionsForwardAndBackward) {
  const at::Tensor x = at::randn({2, 4, 16, 16}).requires_grad_(true);
  const at::Tensor w = at::randn({8, 4, 3, 3}).requires_grad_(true);
  const double once = 2.0 * 2 * 8 * 16 * 16 * 4 * 9;
  at::Tensor y;
  const Operations forward = operations_of([&] { y = at::conv2d(x, w, {}, 1, 1); });
  EXPECT_EQ(forward.flops, once);
  EXPECT_EQ(forward.matrix_bytes, static_cast<double>(x.nbytes() + w.nbytes() + y.nbytes()));
  EXPECT_EQ(forward.other_bytes, 0);
  const at::Tensor dy = at::ones_like(y);
  const Operations backward = operations_of([&] { torch::autograd::grad({y}, {x, w}, {dy}); });
  EXPECT_EQ(backward.flops, 2 * once);
  const Operations product = operations_of([] { at::mm(at::ones({3, 5}), at::ones({5, 7})); });
  EXPECT_EQ(product.flops, 2.0 * 3 * 5 * 7);
  const at::Tensor z = at::ones({100});
  EXPECT_EQ(operations_of([&] { z.neg(); }).other_bytes, 800.0);
}

TEST(Sites, AreMeasuredForEveryRoute) {
  on_thread_ranks(2, at::kCPU, [&](World& world) {
    const Json routes = measure_routes(world, "shared_memory", 0.5);
    const Json kernels = measure_kernels(world, 0.1);
    if (world.rank() == 0) {
      std::set<std::string> names;
      for (const Json& row : routes) names.insert(row.at("strategy").get<std::string>());
      EXPECT_TRUE(names.contains("sync(route=host)"));
      EXPECT_TRUE(names.contains("sync(route=reduce_broadcast)"));
      EXPECT_GT(kernels.at("copy_bytes_per_s"), 0);
      EXPECT_GT(kernels.at("norm_forward_bytes_per_s"), 0);
      EXPECT_GT(kernels.at("fastest_copy_bytes_per_s"), 0);
      EXPECT_GT(kernels.at("product_flops_per_s").at("float32"), 0);
      EXPECT_GT(kernels.at("product_flops_per_s").at("bfloat16"), 0);
    }
  });
}

}  // namespace
}  // namespace bnlab::steps_test
