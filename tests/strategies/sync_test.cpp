// sync: cases that implementations of synchronised batch normalisation were found wrong in, each against
// LibTorch's own batch_norm or a formula written out here.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <future>
#include <set>
#include <string>
#include <thread>

#include "harness/communicator/host/network.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/support/error.hpp"
#include "harness/verify/cases.hpp"
#include "harness/verify/comparison.hpp"
#include "tests/verify/plain_batch_norm.hpp"

namespace bnlab {
namespace {

using Sizes = std::vector<int64_t>;

void expect_batch_norm_of_the_whole(const LayerCase& c, int ranks = 1) {
  EXPECT_EQ(compare(c, plain_batch_norm(c), joined(apply_layer(c, ranks))).failure, "") << c.towers();
}

TEST(Sync, EqualsBatchNormOverTheWholeBatchAfterOneStepAndAfterFive) {
  for (const Sizes& towers : std::vector<Sizes>{
           {8}, {4, 4}, {2, 2, 2, 2}, Sizes(8, 2), Sizes(8, 1), {2, 3, 4, 5}, {0, 4, 0, 1}, {4, 0}}) {
    for (const Sizes& sample : std::vector<Sizes>{{5}, {5, 7}, {16, 3, 4}, {3, 2, 3, 4}}) {
      expect_batch_norm_of_the_whole(
          make_case("sync", {.towers = towers, .sample = sample, .modes = std::vector<Mode>(5)}));
    }
  }
}

TEST(Sync, UnevenTowersWeighByTheirSizes) {
  LayerCase loud = make_case("sync", {{16, 8}});
  loud.steps[0].inputs[1] = loud.steps[0].inputs[1] * 50;
  expect_batch_norm_of_the_whole(loud);

  LayerCase constants = make_case("sync", {{10, 100, 1000}, {1}, std::vector<Mode>(100)});
  for (LayerStep& step : constants.steps) {
    step.gradients.clear();
    for (size_t t = 0; t < 3; ++t) step.inputs[t] = at::full_like(step.inputs[t], static_cast<double>(t + 1));
  }
  const at::Tensor all = at::cat(constants.steps[0].inputs);
  const double kept = std::pow(0.9, 100);
  const LayerStepAnswer last = apply_layer(constants).steps.back();
  EXPECT_LT(relative_error(last.running_mean, kept * constants.running_mean + (1 - kept) * all.mean(0)),
            kExact);
  EXPECT_LT(relative_error(last.running_var, kept * constants.running_var + (1 - kept) * all.var(0, true)),
            kExact);
}

TEST(Sync, OneSamplePerTowerIsEnoughWhereTheTowersAreMany) {
  const LayerCase c = make_case("sync", {{1, 1, 1, 1}, {4, 1, 1}});
  expect_batch_norm_of_the_whole(c, 4);
  try {
    apply_layer(make_case("sync", {{0, 1, 0, 0}, {4, 1, 1}}), 4);  // all ranks refuse; none is left waiting
    FAIL() << "one value normalised";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "more than 1 value per channel is needed to normalise (site site, strategy sync, set of 1)");
  }
}

TEST(Sync, AnEmptyFirstTowerOfHalvesIsAsIfItWereNotThere) {
  const LayerCase with = make_case("sync", {.towers = {0, 3, 4}, .dtype = at::kHalf});
  const LayerCase without = dealt(with, {3, 4});
  const LayerStepAnswer a = apply_layer(with).steps[0], b = apply_layer(without).steps[0];
  EXPECT_TRUE(at::equal(at::cat(a.outputs), at::cat(b.outputs)));
  EXPECT_TRUE(at::equal(at::cat(a.input_gradients), at::cat(b.input_gradients)));
  EXPECT_TRUE(at::equal(a.weight_gradient, b.weight_gradient));
  EXPECT_TRUE(at::equal(a.running_var, b.running_var));
}

// Of the unbiased variance on the first step, in float32; what E[x2] - E[x]^2 does there is 1e3 times worse.
TEST(Sync, TheVarianceKeepsItsDigitsAboutALargeMean) {
  struct Data {
    double mean, deviation, bound;
  };
  for (const Data& data :
       {Data{100, 1, 2e-7}, {1e3, 1, 1.7e-6}, {1e4, 1, 1.1e-5}, {5, 1e-3, 9e-6}, {0, 1e-4, 2e-7}}) {
    for (const char* route : {"all_gather", "all_reduce"}) {
      LayerCase c = make_case({{"name", "sync"}, {"momentum", 1}, {"route", route}},
                              {.towers = Sizes(8, 2048), .sample = {2}, .dtype = at::kFloat});
      const at::Generator generator = at::detail::createCPUGenerator(3);
      for (at::Tensor& x : c.steps[0].inputs)
        x = (at::randn(x.sizes(), generator, at::kDouble) * data.deviation + data.mean).to(at::kFloat);
      const at::Tensor expected = at::cat(c.steps[0].inputs).to(at::kDouble).var(0, true);
      const LayerStepAnswer answer = apply_layer(c).steps[0];
      EXPECT_LT(relative_error(answer.running_var, expected), data.bound)
          << data.mean << ", " << data.deviation << ", " << route;
      EXPECT_TRUE(at::cat(answer.outputs).isfinite().all().item<bool>());
    }
  }
}

std::set<std::string> collectives_of(const LayerAnswer& answer) {
  std::set<std::string> ops;
  for (const LayerStepAnswer& step : answer.steps)
    for (const Collective& collective : step.collectives) ops.insert(collective.op);
  return ops;
}

TEST(Sync, RouteAutoGathersOnSixteenRanksAndReducesOnMore) {
  for (const int ranks : {16, 17}) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    const auto by = [&](const char* route) {
      return apply_layer(make_case({{"name", "sync"}, {"route", route}},
                                   {.towers = Sizes(static_cast<size_t>(ranks), 2), .sample = {3, 2}}),
                         ranks);
    };
    const LayerAnswer gathered = by("all_gather"), automatic = by("auto");
    EXPECT_EQ(collectives_of(automatic), std::set<std::string>{ranks == 16 ? "all_gather" : "all_reduce"});
    const LayerStepAnswer &a = gathered.steps[0], &b = automatic.steps[0];
    EXPECT_LT(relative_error(at::cat(b.outputs), at::cat(a.outputs)), 1e-10);
    EXPECT_LT(relative_error(at::cat(b.input_gradients), at::cat(a.input_gradients)), 1e-10);
    EXPECT_LT(relative_error(b.running_var, a.running_var), 1e-10);
    EXPECT_EQ(at::equal(at::cat(b.outputs), at::cat(a.outputs)), ranks == 16) << "another order of the sums";
  }
}

TEST(Sync, AConstantChannelBecomesTheBias) {
  LayerCase c = make_case("sync", {{3, 2}, {4}});
  for (at::Tensor& x : c.steps[0].inputs) x = at::full_like(x, 1e4);
  const LayerStepAnswer answer = apply_layer(c).steps[0];
  EXPECT_LT(relative_error(answer.outputs[0], c.bias.expand({3, 4})), 1e-9);
  EXPECT_TRUE(at::cat(answer.input_gradients).isfinite().all().item<bool>());
}

TEST(Sync, HowTwentyFourSamplesAreSplitDoesNotMatterWhenPooled) {
  const LayerCase one = make_case("sync", {{24}, {4, 2, 3}, {Mode::train, Mode::train}});
  const LayerAnswer expected = apply_layer(one);
  for (const int64_t towers : {2, 3, 4, 6, 8, 12, 24}) {
    const LayerCase c = dealt(one, Sizes(static_cast<size_t>(towers), 24 / towers));
    EXPECT_EQ(compare(c, expected, joined(apply_layer(c))).failure, "") << towers << " towers";
    for (const int ranks : {2, 3, 4, 6})
      if (towers == 12)
        EXPECT_EQ(compare(c, expected, joined(apply_layer(c, ranks))).failure, "") << ranks << " ranks";
  }
}

TEST(Sync, GroupsBelowAndAboveARankAreBatchNormOfTheirSlices) {
  for (const int64_t group : {1, 2, 4}) {
    const LayerCase c = make_case({{"name", "sync"}, {"group_size", group}}, {{2, 3, 4, 2}, {4, 2, 3}});
    for (const int ranks : {1, 2, 4}) {
      const LayerStepAnswer answer = apply_layer(c, ranks).steps[0];
      at::Tensor mean = at::zeros_like(c.running_mean);
      for (int64_t first = 0; first < 4; first += group) {
        const auto part = [&](const std::vector<at::Tensor>& all) {
          return std::vector<at::Tensor>(all.begin() + first, all.begin() + first + group);
        };
        LayerCase slice = c;
        slice.steps[0].inputs = part(c.steps[0].inputs);
        slice.steps[0].gradients = part(c.steps[0].gradients);
        const LayerStepAnswer expected = plain_batch_norm(slice).steps[0];
        EXPECT_LT(relative_error(at::cat(part(answer.outputs)), expected.outputs[0]), kExact);
        EXPECT_LT(relative_error(at::cat(part(answer.input_gradients)), expected.input_gradients[0]), kExact);
        mean += expected.running_mean * static_cast<double>(group) / 4;
      }
      EXPECT_LT(relative_error(answer.running_mean, mean), kExact)
          << group << " towers, " << ranks << " ranks";
    }
  }
}

TEST(Sync, TheSavedPairIsExactlyTheDeclaredRule) {
  const CaseShape shape{{3, 2, 4}, {4, 2, 3}};
  const LayerCase c = make_case("per_tower", shape);
  std::vector<at::Tensor> means, vars;
  for (const at::Tensor& x : c.steps[0].inputs) {
    means.push_back(rows(x).mean(1));
    vars.push_back(rows(x).var(1, true));
  }
  const at::Tensor all = rows(at::cat(c.steps[0].inputs));
  const auto once = [](const at::Tensor& before, const at::Tensor& value) {
    return 0.9 * before + 0.1 * value;
  };
  const auto expect = [&](const Json& strategy, const at::Tensor& mean, const at::Tensor& var) {
    LayerCase other = c;
    other.strategy = resolved_strategy(strategy);
    for (const int ranks : {1, 3}) {
      const LayerStepAnswer answer = apply_layer(other, ranks).steps[0];
      EXPECT_LT(relative_error(answer.running_mean, mean), kExact) << strategy.dump();
      EXPECT_LT(relative_error(answer.running_var, var), kExact) << strategy.dump();
    }
  };
  const auto tower = [&](const Json& strategy, size_t t) {
    expect(strategy, once(c.running_mean, means[t]), once(c.running_var, vars[t]));
  };
  tower("per_tower", 0);
  tower({{"name", "per_tower"}, {"saved_tower", 1}}, 1);
  tower("single_tower", 0);
  tower("last_tower", 2);
  at::Tensor mean = c.running_mean, var = c.running_var;
  for (size_t t = 0; t < 3; ++t) {
    mean = once(mean, means[t]);
    var = once(var, vars[t]);
  }
  expect("every_tower", mean, var);
  expect("averaged", once(c.running_mean, at::stack(means).mean(0)),
         once(c.running_var, at::stack(vars).mean(0)));
  for (const Json& pooled : {Json("sync"), Json{{"name", "averaged"}, {"merge", "pooled"}}})
    expect(pooled, once(c.running_mean, all.mean(1)), once(c.running_var, all.var(1, true)));
}

TEST(Sync, AveragedVarianceLacksTheSpreadOfTheMeansAndNothingElse) {
  LayerCase alike = make_case("sync", {{3, 3}, {4, 2, 3}});
  alike.steps[0].inputs[1] = alike.steps[0].inputs[0];
  LayerCase averaged = alike;
  averaged.strategy["variance"] = "averaged";
  EXPECT_EQ(compare(alike, apply_layer(alike), apply_layer(averaged)).failure, "");

  LayerCase pooled = make_case({{"name", "sync"}, {"momentum", 1}}, {{2, 3, 5}, {4, 2, 3}});
  averaged = pooled;
  averaged.strategy["variance"] = "averaged";
  const double n = 6 * 10;
  at::Tensor spread = at::zeros_like(pooled.running_mean);
  const at::Tensor mean = rows(at::cat(pooled.steps[0].inputs)).mean(1);
  for (const at::Tensor& x : pooled.steps[0].inputs)
    spread += static_cast<double>(6 * x.size(0)) / n * (rows(x).mean(1) - mean).square();
  const at::Tensor lacking =
      apply_layer(pooled).steps[0].running_var - apply_layer(averaged).steps[0].running_var;
  EXPECT_LT(relative_error(lacking * (n - 1) / n, spread), 1e-11);
}

// Towers of 1 and of 3, 5, 7. Over all values E[x] = 4 and the variance is 5; as the mean of two towers
// E[x] = 3 and E[x2] = (1 + 83/3) / 2. On ranks of their own the towers are images of different sizes.
TEST(Sync, TowersCountByTheirValuesOrAlikeWhateverRanksHold) {
  LayerCase c;
  c.steps.resize(1);
  for (const bool alike : {false, true}) {
    const double mean = alike ? 3 : 4, var = alike ? (1 + 83.0 / 3) / 2 - 9 : 5;
    for (const char* options :
         {"{}", R"({"route": "all_reduce"})", R"({"moments": "e_x2"})", R"({"route": "host"})",
          R"({"route": "all_reduce", "moments": "e_x2"})", R"({"route": "reduce_broadcast"})"}) {
      Json strategy = {{"name", "sync"}, {"eps", 1e-20}, {"momentum", 1}};
      if (alike) strategy["weights"] = "equal";
      strategy.update(Json::parse(options));
      c.strategy = resolved_strategy(strategy);
      for (const int ranks : {1, 3}) {
        const auto tower = [&](const std::vector<double>& values) {
          const auto n = static_cast<int64_t>(values.size());
          const at::Tensor x = at::tensor(values, at::kDouble);
          return ranks == 1 ? x.view({n, 1, 1, 1}) : x.view({n > 0 ? 1 : 0, 1, 1, std::max<int64_t>(n, 1)});
        };
        c.steps[0].inputs = {tower({1}), tower({3, 5, 7}), tower({})};
        const LayerStepAnswer answer = apply_layer(c, ranks).steps[0];
        std::vector<at::Tensor> y;
        for (const at::Tensor& output : answer.outputs) y.push_back(output.flatten());
        const at::Tensor expected = (at::tensor({1.0, 3.0, 5.0, 7.0}, at::kDouble) - mean) / std::sqrt(var);
        EXPECT_LT(relative_error(at::cat(y), expected), 1e-12) << options << alike << ranks;
        EXPECT_NEAR(answer.running_var.item<double>(), var * 4 / 3, 1e-12) << options << alike << ranks;
      }
    }
  }
}

TEST(Sync, EqualWeightsOfEvenTowersAreThoseOfTheirValues) {
  LayerCase c = make_case("sync", {.towers = {3, 3, 3}, .modes = std::vector<Mode>(2)});
  const LayerAnswer expected = apply_layer(c);
  c.strategy["weights"] = "equal";
  const LayerAnswer answer = apply_layer(c);
  for (size_t k = 0; k < 2; ++k) {
    const LayerStepAnswer &a = answer.steps[k], &b = expected.steps[k];
    EXPECT_LT(relative_error(at::cat(a.outputs), at::cat(b.outputs)), 1e-13);
    EXPECT_LT(relative_error(at::cat(a.input_gradients), at::cat(b.input_gradients)), 1e-13);
    EXPECT_LT(relative_error(a.running_var, b.running_var), 1e-13);
  }
}

TEST(Sync, EqualWeightsAreRefusedWhereTheActivationsThemselvesTravel) {
  Problems problems;
  check_component(
      "strategy",
      resolved_strategy({{"name", "sync"}, {"weights", "equal"}, {"route", "gather_activations"}}),
      "strategy", {}, problems);
  ASSERT_EQ(problems.found().size(), 1u);
  EXPECT_EQ(problems.found()[0].first, "strategy.weights");
}

TEST(Sync, TheUnbiasedVarianceNormalisesAndIsRemembered) {
  const LayerCase biased =
      make_case({{"name", "sync"}, {"momentum", 1}, {"eps", 1e-20}}, {{2, 3}, {4, 2, 3}});
  LayerCase unbiased = biased;
  unbiased.strategy["normalise"] = "unbiased";
  unbiased.weight = biased.weight * std::sqrt(30.0 / 29);
  const LayerStepAnswer a = apply_layer(unbiased).steps[0], b = apply_layer(biased).steps[0];
  EXPECT_LT(relative_error(at::cat(a.outputs), at::cat(b.outputs)), 1e-12);
  EXPECT_LT(relative_error(at::cat(a.input_gradients), at::cat(b.input_gradients)), 1e-12);
  EXPECT_TRUE(at::equal(a.running_var, b.running_var));
}

TEST(Sync, AStoppedGradientLacksTheTwoTermsOfTheMoments) {
  const LayerCase full = make_case("sync", {{2, 3}, {4, 2, 3}});
  LayerCase stopped = full;
  stopped.strategy["gradient"] = "stopped";
  const LayerStepAnswer a = apply_layer(stopped).steps[0], b = apply_layer(full).steps[0];
  const at::Tensor x = at::cat(full.steps[0].inputs), dy = at::cat(full.steps[0].gradients);
  EXPECT_EQ(relative_error(at::cat(a.outputs), at::cat(b.outputs)), 0);
  const at::Tensor m = rows(x).mean(1), s = 1 / (rows(x).var(1, false) + 1e-5).sqrt();
  const at::Tensor centred = x - by_channel(m, x);
  const double n = 6 * 5;
  const at::Tensor a_sum = rows(dy).sum(1), b_sum = rows(dy * centred).sum(1);
  const at::Tensor terms = by_channel(full.weight * s / n, x) *
                           (by_channel(a_sum, x) + centred * by_channel(s.square() * b_sum, x));
  EXPECT_LT(relative_error(at::cat(a.input_gradients) - at::cat(b.input_gradients), terms), kExact);
}

TEST(Sync, ARankThatSkipsASiteEndsInATimeoutThatNamesIt) {
  const LayerCase c = make_case("sync", {{3, 2}});
  const LoopbackSocket socket;
  const auto join = [&](int rank) {
    Rendezvous at;
    at.rank = rank;
    at.size = 2;
    at.port = socket.port();
    at.listen_fd = rank == 0 ? ::dup(socket.fd()) : -1;  // the store closes it
    at.timeout = std::chrono::seconds(2);
    return join_world(at, at::kCPU);
  };
  std::promise<void> done;
  std::thread skipping([&] {
    const auto world = join(1);
    done.get_future().wait();
  });
  std::string message;
  try {
    const auto world = join(0);
    std::string key;
    LayerRank(c, *world, key).step(0);
  } catch (const std::exception& e) {
    message = e.what();
  }
  done.set_value();
  skipping.join();
  EXPECT_NE(message.find("site site"), std::string::npos) << message;
}

}  // namespace
}  // namespace bnlab
