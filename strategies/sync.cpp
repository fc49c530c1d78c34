// sync: all towers (or groups of `group_size` consecutive towers) normalise by their pooled moments, as
// one device with the whole batch would; synchronised BN, cross-GPU BN.
//   y = gamma (x - m) / sqrt(v + eps) + beta, m and v over the group
//   dx = gamma s (dy - A/N - (x - m) s^2 B/N), A = sum dy and B = sum dy (x - m) over the group
// gradient own_tower: A and B of the tower alone; stopped: dx = gamma s dy.
// variance averaged: v = sum n_t v_t / N, which leaves out the spread of the towers' means.
// moments e_x2: v = E[x2] - E[x]^2 in the statistics' precision, which loses all where |mean| >> std.
#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab {
namespace {

Route route(const std::string& name) {
  return name == "all_gather"         ? Route::all_gather
         : name == "all_reduce"       ? Route::all_reduce
         : name == "reduce_broadcast" ? Route::reduce_broadcast
         : name == "host"             ? Route::host
                                      : Route::gather_activations;
}

Rules rules(const Json& options, const Strategy::Context&) {
  Rules rules = shared_rules(options);
  rules.normalise_by = NormaliseBy::pooled;
  rules.remember = Remember::pooled;
  const auto gradient = options.at("gradient").get<std::string>();
  rules.gradient = gradient == "full"        ? Gradient::full
                   : gradient == "own_tower" ? Gradient::own_tower
                                             : Gradient::stopped;
  const bool averaged = options.at("variance") == "averaged", e_x2 = options.at("moments") == "e_x2";
  rules.merge = averaged ? Merge::averaged : e_x2 ? Merge::e_x2 : Merge::chan;
  rules.route = route(options.at("route").get<std::string>());
  rules.group_size = options.at("group_size").is_null() ? 0 : options.at("group_size").get<int64_t>();
  const auto undefined = [](const std::string& pair) {
    throw Error(Error::Kind::refused, "sync: " + pair + " is not defined; change one of them");
  };
  if (rules.gradient == Gradient::own_tower && averaged) {
    undefined("gradient own_tower together with variance averaged");
  }
  if (averaged && e_x2) {
    undefined("moments e_x2 together with variance averaged");
  }
  return rules;
}

const Registered<Strategy> entry{
    {"sync", "all towers of a group normalise by their pooled moments",
     tower_parameters(
         {Parameter::integer("group_size", nullptr, "towers that pool their moments; null: all")
              .at_least(1)
              .or_null(),
          Parameter::choice("route", "all_gather",
                            {"all_gather", "all_reduce", "reduce_broadcast", "host", "gather_activations"},
                            "how the moments meet: the same arithmetic at another price"),
          Parameter::choice("gradient", "full", {"full", "own_tower", "stopped"},
                            "what passes through the moments in backward"),
          Parameter::choice("variance", "pooled", {"pooled", "averaged"},
                            "of the whole group, or the mean of the towers' own variances"),
          Parameter::choice("moments", "chan", {"chan", "e_x2"},
                            "numerically safe merge, or E[x2] - E[x]^2 in the statistics' precision")}),
     "Peng et al. 2018 (MegDet), Zhang et al. 2018, PyTorch SyncBatchNorm, tensorpack, Horovod, MXNet",
     "m = sum n_t m_t / N, M = sum n_t v_t + sum n_t (m_t - m)^2, v = M/N, s = 1/sqrt(v + eps)\n"
     "y = gamma (x - m) s + beta\n"
     "dx = gamma s (dy - A/N - (x - m) s^2 B/N), A = sum dy, B = sum dy (x - m) over the group\n"
     "running <- (1 - momentum) running + momentum (m, M/(N - 1))",
     "1 forward, 1 backward (gradient own_tower or stopped: 1 forward)", "when the batch per device is small",
     "costs two waits per site and step, whatever their size"},
    make_bn_strategy<rules>};

}  // namespace
}  // namespace bnlab
