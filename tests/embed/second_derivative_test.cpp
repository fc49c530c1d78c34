// Gradient penalties through layers of the library: on one rank and on two, training and evaluation. What
// each strategy computes there is tested in tests/strategies.
#include "two_ranks.hpp"

namespace bnlab {
namespace {

namespace nn = torch::nn;

// The derivative of |dL/dx|^2 by the convolution's weight along a direction, summed over the ranks that share
// the weight, and what central differences say it is.
std::pair<double, double> penalty(const BatchNormOptions& options, bool trains, int64_t first, int64_t rows) {
  torch::manual_seed(1);
  nn::Conv2d conv(nn::Conv2dOptions(kChannels, kChannels, 3).bias(false));
  BatchNorm norm(options);
  conv->to(at::kDouble);
  norm->to(at::kDouble);
  norm->train(trains);
  const at::Tensor x = batch(8, 0).narrow(0, first, rows).requires_grad_(), w = conv->weight;
  const at::Tensor direction = batch(kChannels, 3, 3).narrow(3, 0, 3);
  const auto value = [&](bool twice) {
    const at::Tensor h = conv->forward(x);
    const at::Tensor loss = norm->forward(h, h.tanh()).pow(3).sum();
    return torch::autograd::grad({loss}, {x}, {}, true, twice)[0].square().sum();
  };
  value(true).backward();
  const auto at_distance = [&](double h) {
    const at::NoGradGuard no_grad;
    w.add_(direction, h);
    const at::AutoGradMode on(true);
    const double found = value(false).item<double>();
    w.detach().add_(direction, -h);
    return found;
  };
  constexpr double h = 1e-6;
  return {(w.grad() * direction).sum().item<double>(), (at_distance(h) - at_distance(-h)) / (2 * h)};
}

TEST(BatchNorm, GivesAGradientPenaltyItsGradient) {
  for (const bool trains : {true, false}) {
    for (const std::string strategy :
         {"per_tower", "sync", "every_tower", R"({"name": "averaged", "merge": "pooled"})", "frozen",
          R"({"name": "group_norm", "groups": 3})", "instance_norm", "dynamic_tanh", "filter_response_norm",
          R"({"name": "sync", "route": "host"})"}) {
      SCOPED_TRACE(strategy + (trains ? ", training" : ", evaluation"));
      const BatchNormOptions options =
          BatchNormOptions(kChannels).strategy(strategy).relu(true).towers_per_rank(2);
      const auto alone = penalty(options, trains, 0, 8);
      EXPECT_NEAR(alone.first, alone.second, 1e-6 * std::abs(alone.second));
      const auto [a, b] = on_two_ranks([&](const Ranks& ranks) {
        return penalty(BatchNormOptions(options).ranks(ranks), trains, ranks.rank() == 0 ? 0 : 3,
                       ranks.rank() == 0 ? 3 : 5);
      });
      EXPECT_NEAR(a.first + b.first, a.second + b.second, 1e-6 * std::abs(a.second + b.second));
    }
  }
}

TEST(BatchNorm, RefusesByNameAGradientOfAGradientThatIsNotDefined) {
  EXPECT_SAYS(
      penalty(BatchNormOptions(kChannels).strategy("batch_renorm").total_steps(10).name("norm0"), true, 0, 8),
      "batch_renorm (site norm0): its backward pass cannot be differentiated again");
}

}  // namespace
}  // namespace bnlab
