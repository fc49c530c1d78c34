// sync: all towers, or groups of `group_size` consecutive towers, normalise by their pooled moments as one
// device with the whole batch would (synchronised BN, cross-GPU BN); engine/bn_layer.cpp computes it. Five
// options reproduce what differs between implementations:
//   gradient own_tower sums A and B over the tower alone, stopped lets no gradient through the moments;
//   variance averaged leaves out the spread of the towers' means: v = sum n_t v_t / N;
//   moments e_x2 takes E[x2] - E[x]^2 in the statistics' precision and loses all digits where |mean| >> std;
//   weights equal takes E as the mean of the towers' means: n_t is N / T above, and N is T n_t in dx;
//   normalise unbiased normalises by v N / (N - 1), and the gradient passes through that.
#include "strategies/engine/bn_strategy.hpp"
#include "strategies/engine/exchange/route.hpp"

namespace bnlab::sync {

BNLAB_CHOICE(Variance, pooled, averaged)
BNLAB_CHOICE(Sums, chan, e_x2)
BNLAB_CHOICE(Weights, values, equal)
BNLAB_CHOICE(Normalise, biased, unbiased)

struct Options : BnOptions {
  std::optional<int64_t> group_size;
  std::string route = "all_gather";
  Gradient gradient = Gradient::full;
  Variance variance = Variance::pooled;
  Sums moments = Sums::chan;
  Weights weights = Weights::values;
  Normalise normalise = Normalise::biased;

  void describe(OptionVisitor& option) {
    option("group_size", group_size, "towers that pool their moments; null: all").at_least(1);
    option("route", route, "").one_of(route_names()).help =
        "how the moments meet: the same numbers up to rounding, at another price. " + route_summaries();
    option("gradient", gradient, "what passes through the moments in backward");
    option("variance", variance, "of the whole group, or the mean of the towers' own variances");
    option("moments", moments, "numerically safe merge, or E[x2] - E[x]^2 in the statistics' precision");
    option("weights", weights, "a tower counts by its values, or as much as any other");
    option("normalise", normalise, "by M2 / N, or by M2 over N - 1");
    BnOptions::describe(option);
  }

  void check(const RunOutline& run, Problems& problems) const {
    BnOptions::check(run, problems);
    const auto towers = static_cast<int64_t>(run.samples_per_tower.size());
    if (group_size && towers % *group_size != 0) {
      problems.add("group_size", "expected a divisor of the " + std::to_string(towers) + " towers, got " +
                                     std::to_string(*group_size));
    }
    const std::string undefined = " is not defined together with variance averaged; change one of them";
    if (variance == Variance::averaged && gradient == Gradient::own_tower)
      problems.add("gradient", "own_tower" + undefined);
    if (variance == Variance::averaged && moments == Sums::e_x2) problems.add("moments", "e_x2" + undefined);
    if (weights == Weights::equal && about_route(route).moves_rows)
      problems.add("weights", "equal is not defined with route " + route +
                                  ", which takes moments of all values at once; change one of them");
  }

  Rules rules(const Strategy::Context&) const {
    Rules rules = shared_rules("sync");
    rules.normalise_by = NormaliseBy::pooled;
    rules.remember = Remember::pooled;
    rules.gradient = gradient;
    rules.merge = variance == Variance::averaged ? Merge::averaged
                  : moments == Sums::e_x2        ? Merge::e_x2
                                                 : Merge::chan;
    rules.route = route;
    rules.group_size = group_size.value_or(0);
    rules.equal_weights = weights == Weights::equal;
    rules.normalise_ddof = normalise == Normalise::unbiased ? 1 : 0;
    return rules;
  }
};

const Registered<Strategy> entry{
    {.name = "sync",
     .summary = "all towers of a group normalise by their pooled moments",
     .source =
         "Peng et al. 2018 (MegDet), Zhang et al. 2018, PyTorch SyncBatchNorm, tensorpack, Horovod, MXNet",
     .formula = "m = sum n_t m_t / N, M = sum n_t v_t + sum n_t (m_t - m)^2, v = M/N, s = 1/sqrt(v + eps)\n"
                "y = gamma (x - m) s + beta\n"
                "dx = gamma s (dy - A/N - (x - m) s^2 B/N), A = sum dy, B = sum dy (x - m) over the group\n"
                "running <- (1 - momentum) running + momentum (m, M/(N - 1))",
     .exchanges = "1 forward, 1 backward (gradient own_tower or stopped: 1 forward)",
     .use = "when the batch per device is small",
     .limits = "costs two waits per site and step, whatever their size"},
    make_bn_strategy<Options>};

}  // namespace bnlab::sync
