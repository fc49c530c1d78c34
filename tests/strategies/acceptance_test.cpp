// Cases that implementations of synchronised batch normalisation were found wrong in, each against LibTorch's
// own batch_norm or a formula written out here. Elsewhere, for every strategy: empty towers, equality of all
// ranks, gradients by finite differences and dtypes (conformance.hpp).
#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <future>
#include <thread>

#include "harness/communicator/loopback_socket.hpp"
#include "harness/error.hpp"
#include "tests/strategies/case_for.hpp"
#include "tests/strategies/one_site.hpp"
#include "tests/strategies/plain_batch_norm.hpp"

namespace bnlab {
namespace {

constexpr double kExact = 1e-12;

LayerCase make_case(const Json& strategy, const CaseShape& shape) {
  return case_for(resolved_strategy(strategy), shape);
}

const std::vector<std::string> kNone;

TEST(Acceptance, SyncOfOneToEightTowersIsBatchNormAfterOneStepAndAfterFive) {
  for (const size_t towers : {1, 2, 4, 8}) {
    for (const std::vector<int64_t>& rest :
         std::vector<std::vector<int64_t>>{{5}, {5, 7}, {16, 3, 4}, {3, 2, 3, 4}}) {
      const LayerCase c = make_case("sync", {std::vector<int64_t>(towers, 2), rest, std::vector<Mode>(5)});
      EXPECT_EQ(differences(joined(apply_layer(c)), plain_batch_norm(c), kExact), kNone)
          << towers << " towers";
    }
  }
}

TEST(Acceptance, UnevenTowersWeighByTheirSizes) {
  const LayerCase growing = make_case("sync", {{2, 3, 4, 5}});
  EXPECT_EQ(differences(joined(apply_layer(growing)), plain_batch_norm(growing), kExact), kNone);

  LayerCase loud = make_case("sync", {{16, 8}});
  loud.steps[0].inputs[1] = loud.steps[0].inputs[1] * 50;
  EXPECT_EQ(differences(joined(apply_layer(loud)), plain_batch_norm(loud), kExact), kNone);

  LayerCase constants = make_case("sync", {{10, 100, 1000}, {1}, std::vector<Mode>(100)});
  for (LayerStep& step : constants.steps) {
    step.gradients.clear();
    for (size_t t = 0; t < 3; ++t) {
      step.inputs[t] = at::full_like(step.inputs[t], static_cast<double>(t + 1));
    }
  }
  const at::Tensor all = at::cat(constants.steps[0].inputs);
  const double kept = std::pow(0.9, 100);
  const LayerStepAnswer last = apply_layer(constants).steps.back();
  EXPECT_LT(deviation(last.running_mean, kept * constants.running_mean + (1 - kept) * all.mean(0), 0),
            kExact);
  EXPECT_LT(deviation(last.running_var, kept * constants.running_var + (1 - kept) * all.var(0, true), 0),
            kExact);
}

TEST(Acceptance, OneSamplePerTowerIsEnoughWhereTheTowersAreMany) {
  const LayerCase c = make_case("sync", {{1, 1, 1, 1}, {4, 1, 1}});
  EXPECT_EQ(differences(joined(apply_layer(c, 4)), plain_batch_norm(c), kExact), kNone);
  try {
    apply_layer(make_case("sync", {{0, 1, 0, 0}, {4, 1, 1}}), 4);  // all ranks refuse; none is left waiting
    FAIL() << "one value normalised";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "more than 1 value per channel is needed to normalise (site site, strategy sync, set of 1)");
  }
}

TEST(Acceptance, AnEmptyFirstTowerOfHalvesIsAsIfItWereNotThere) {
  const LayerCase with = make_case("sync", {{0, 3, 4}, {8, 2, 3}, {Mode::train}, 0, at::kHalf});
  const LayerCase without = dealt(with, {3, 4});
  EXPECT_EQ(differences(joined(apply_layer(with)), joined(apply_layer(without)), 0), kNone);
}

// Of the unbiased variance on the first step, in float32; what E[x2] - E[x]^2 does there is 1e3 times worse.
TEST(Acceptance, TheVarianceKeepsItsDigitsAboutALargeMean) {
  struct Data {
    double mean, deviation, bound;
  };
  for (const Data& data :
       {Data{100, 1, 2e-7}, {1e3, 1, 1.7e-6}, {1e4, 1, 1.1e-5}, {5, 1e-3, 9e-6}, {0, 1e-4, 2e-7}}) {
    for (const char* route : {"all_gather", "all_reduce"}) {
      LayerCase c = make_case({{"name", "sync"}, {"momentum", 1}, {"route", route}},
                              {std::vector<int64_t>(8, 2048), {2}, {Mode::train}, 0, at::kFloat});
      const at::Generator generator = at::detail::createCPUGenerator(3);
      for (at::Tensor& x : c.steps[0].inputs) {
        x = (at::randn(x.sizes(), generator, at::kDouble) * data.deviation + data.mean).to(at::kFloat);
      }
      const at::Tensor expected = at::cat(c.steps[0].inputs).to(at::kDouble).var(0, true);
      const LayerStepAnswer answer = apply_layer(c).steps[0];
      EXPECT_LT(deviation(answer.running_var, expected, 0), data.bound)
          << data.mean << ", " << data.deviation << ", " << route;
      EXPECT_TRUE(at::cat(answer.outputs).isfinite().all().item<bool>());
    }
  }
}

TEST(Acceptance, AConstantChannelBecomesTheBias) {
  LayerCase c = make_case("sync", {{3, 2}, {4}});
  for (at::Tensor& x : c.steps[0].inputs) {
    x = at::full_like(x, 1e4);
  }
  const LayerStepAnswer answer = apply_layer(c).steps[0];
  EXPECT_LT(deviation(answer.outputs[0], c.bias.expand({3, 4})), 1e-9);
  EXPECT_TRUE(at::cat(answer.input_gradients).isfinite().all().item<bool>());
}

TEST(Acceptance, HowTwentyFourSamplesAreSplitDoesNotMatterWhenPooled) {
  const LayerCase one = make_case("sync", {{24}, {4, 2, 3}, {Mode::train, Mode::train}});
  const LayerAnswer expected = apply_layer(one);
  for (const int64_t towers : {2, 3, 4, 6, 8, 12, 24}) {
    const LayerCase c = dealt(one, std::vector<int64_t>(static_cast<size_t>(towers), 24 / towers));
    EXPECT_EQ(differences(joined(apply_layer(c)), expected, kExact), kNone) << towers << " towers";
    for (const int ranks : {2, 3, 4, 6}) {
      if (towers == 12) {
        EXPECT_EQ(differences(joined(apply_layer(c, ranks)), expected, kExact), kNone) << ranks << " ranks";
      }
    }
  }
}

TEST(Acceptance, GroupsBelowAndAboveARankAreBatchNormOfTheirSlices) {
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
        EXPECT_LT(deviation(at::cat(part(answer.outputs)), expected.outputs[0]), kExact);
        EXPECT_LT(deviation(at::cat(part(answer.input_gradients)), expected.input_gradients[0]), kExact);
        mean += expected.running_mean * static_cast<double>(group) / 4;
      }
      EXPECT_LT(deviation(answer.running_mean, mean), kExact) << group << " towers, " << ranks << " ranks";
    }
  }
}

TEST(Acceptance, TheSavedPairIsExactlyTheDeclaredRule) {
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
      EXPECT_LT(deviation(answer.running_mean, mean, 0), kExact) << strategy.dump();
      EXPECT_LT(deviation(answer.running_var, var, 0), kExact) << strategy.dump();
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
  for (const Json& pooled : {Json("sync"), Json{{"name", "averaged"}, {"merge", "pooled"}}}) {
    expect(pooled, once(c.running_mean, all.mean(1)), once(c.running_var, all.var(1, true)));
  }
}

TEST(Acceptance, AveragedVarianceLacksTheSpreadOfTheMeansAndNothingElse) {
  LayerCase alike = make_case("sync", {{3, 3}, {4, 2, 3}});
  alike.steps[0].inputs[1] = alike.steps[0].inputs[0];
  LayerCase averaged = alike;
  averaged.strategy["variance"] = "averaged";
  EXPECT_EQ(differences(apply_layer(averaged), apply_layer(alike), kExact), kNone);

  LayerCase pooled = make_case({{"name", "sync"}, {"momentum", 1}}, {{2, 3, 5}, {4, 2, 3}});
  averaged = pooled;
  averaged.strategy["variance"] = "averaged";
  const double n = 6 * 10;
  at::Tensor spread = at::zeros_like(pooled.running_mean);
  const at::Tensor mean = rows(at::cat(pooled.steps[0].inputs)).mean(1);
  for (const at::Tensor& x : pooled.steps[0].inputs) {
    spread += static_cast<double>(6 * x.size(0)) / n * (rows(x).mean(1) - mean).square();
  }
  const at::Tensor lacking =
      apply_layer(pooled).steps[0].running_var - apply_layer(averaged).steps[0].running_var;
  EXPECT_LT(deviation(lacking * (n - 1) / n, spread, 0), 1e-11);
}

TEST(Acceptance, AStoppedGradientLacksTheTwoTermsOfTheMoments) {
  const LayerCase full = make_case("sync", {{2, 3}, {4, 2, 3}});
  LayerCase stopped = full;
  stopped.strategy["gradient"] = "stopped";
  const LayerStepAnswer a = apply_layer(stopped).steps[0], b = apply_layer(full).steps[0];
  const at::Tensor x = at::cat(full.steps[0].inputs), dy = at::cat(full.steps[0].gradients);
  EXPECT_EQ(deviation(at::cat(a.outputs), at::cat(b.outputs)), 0);
  const at::Tensor m = rows(x).mean(1), s = 1 / (rows(x).var(1, false) + 1e-5).sqrt();
  const at::Tensor centred = x - by_channel(m, x);
  const double n = 6 * 5;
  const at::Tensor a_sum = rows(dy).sum(1), b_sum = rows(dy * centred).sum(1);
  const at::Tensor terms = by_channel(full.weight * s / n, x) *
                           (by_channel(a_sum, x) + centred * by_channel(s.square() * b_sum, x));
  EXPECT_LT(deviation(at::cat(a.input_gradients) - at::cat(b.input_gradients), terms), kExact);
}

TEST(Acceptance, ARankThatSkipsASiteEndsInATimeoutThatNamesIt) {
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
    OneSite(c, *world).apply(c.steps[0]);
  } catch (const std::exception& e) {
    message = e.what();
  }
  done.set_value();
  skipping.join();
  EXPECT_NE(message.find("site site"), std::string::npos) << message;
}

}  // namespace
}  // namespace bnlab
