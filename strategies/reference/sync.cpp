// Reference of sync: the towers of a group share the moments of all their values together.
//   y = gamma (x - m) / sqrt(v + eps) + beta, m over the group, v over the group or (averaged) sum n_t v_t /
//   N
// With weights equal m and v are means over the towers that hold values, of m_t and of v_t + (m_t - m)^2 or
// (averaged) of v_t; normalise unbiased puts v N / (N - 1) under the root.
// gradient own_tower is the derivative of each tower's own loss by its own inputs: for the moments that
// normalise a tower the others' values are constants. stopped: all values are.
#include <algorithm>

#include "strategies/reference/batch_norm.hpp"

namespace bnlab::reference {
namespace {

class Sync : public BatchNormSite {
 public:
  Sync(const Json& options, const Start& start)
      : BatchNormSite(options, start),
        gradient_(options.at("gradient").get<std::string>()),
        averaged_(options.at("variance") == "averaged"),
        equal_(options.at("weights") == "equal"),
        unbiased_(options.at("normalise") == "unbiased"),
        group_(options.at("group_size").is_null() ? start.towers : options.at("group_size").get<size_t>()) {
    if (start.towers % group_ != 0) refuse("sync: the groups do not divide the towers");
    if (averaged_ && gradient_ == "own_tower") refuse("sync: own_tower with averaged is not defined");
    if (equal_ && options.at("route").get<std::string>().starts_with("gather_activations"))
      refuse("sync: all values have no weights");
  }

 protected:
  std::vector<Tensors> sets(const Tensors& x) const override {
    std::vector<Tensors> groups;
    for (auto first = x.begin(); first < x.end(); first += static_cast<std::ptrdiff_t>(group_))
      groups.emplace_back(first, first + static_cast<std::ptrdiff_t>(group_));
    return groups;
  }

  Tensors normalised(const Tensors& x) const override {
    Tensors y;
    for (const Tensors& group : sets(x)) {
      const Moments shared = group_moments(group);
      for (size_t t = 0; t < group.size(); ++t) {
        const Moments& m = gradient_ == "full" ? shared : group_moments(seen_by(t, group));
        const auto n = static_cast<double>(m.count);
        const double factor = unbiased_ ? n / std::max(1.0, n - 1) : 1;
        y.push_back(m.count == 0 ? group[t] : standardise(group[t], m.mean, m.var * factor, eps()));
      }
    }
    return y;
  }

  // The parts of a group are its towers, in each pass that is remembered.
  void remember(const Tensors&) override {
    std::vector<Tensors> groups(passes().passes().front().size() / group_);
    for (const Tensors& pass : passes().remembered()) {
      const std::vector<Tensors> of_pass = sets(pass);
      for (size_t g = 0; g < groups.size(); ++g)
        groups[g].insert(groups[g].end(), of_pass[g].begin(), of_pass[g].end());
    }
    std::vector<Pair> pairs;
    for (const Tensors& group : groups) {
      const Moments m = group_moments(group);
      if (m.count > 0) pairs.push_back(written(m));
    }
    remember_mean_of(pairs);
  }

 private:
  Moments group_moments(const Tensors& group) const {
    Moments all = moments(group);
    if (all.count == 0 || !(averaged_ || equal_)) return all;
    Tensors means, vars;
    std::vector<double> weights;
    for (const at::Tensor& tower : group) {
      const Moments own = moments({tower});
      if (own.count == 0) continue;
      means.push_back(own.mean);
      vars.push_back(own.var);
      weights.push_back(equal_ ? 1 : static_cast<double>(own.count));
    }
    const at::Tensor weight = at::tensor(weights, at::kDouble).unsqueeze(1);
    const auto mean = [&](const at::Tensor& of_towers) { return (weight * of_towers).sum(0) / weight.sum(); };
    all.mean = mean(at::stack(means));
    all.var = mean(averaged_ ? at::stack(vars) : at::stack(vars) + (at::stack(means) - all.mean).square());
    return all;
  }

  // What the gradient of tower t's own loss sees of the group.
  Tensors seen_by(size_t t, const Tensors& group) const {
    Tensors seen;
    for (size_t u = 0; u < group.size(); ++u)
      seen.push_back(u == t && gradient_ == "own_tower" ? group[u] : group[u].detach());
    return seen;
  }

  std::string gradient_;
  bool averaged_, equal_, unbiased_;
  size_t group_;
};

class SyncReference : public SiteReference {
 public:
  using SiteReference::SiteReference;

  // Beside those below every route, alone and with groups of two towers.
  std::vector<Json> variants() const override {
    std::vector<Json> all = SiteReference::variants();
    for (const Parameter& parameter : find_registered("strategy", "sync")->parameters()) {
      for (const std::string& route :
           parameter.name == "route" ? parameter.choices : std::vector<std::string>()) {
        all.push_back({{"route", route}});
        all.push_back({{"group_size", 2}, {"route", route}});
      }
    }
    return all;
  }

  // all_reduce sums n m^2, e_x2 subtracts E[x]^2 from E[x^2]: both lose what m^2 has more digits than v.
  double conditioning(const LayerCase& c) const override {
    if (c.strategy.at("route") != "all_reduce" && c.strategy.at("moments") != "e_x2") return 1;
    const size_t group =
        c.strategy.at("group_size").is_null() ? c.towers() : c.strategy.at("group_size").get<size_t>();
    double largest = 0;
    for (const LayerStep& step : c.steps) {
      for (size_t first = 0; first < step.inputs.size(); first += group) {
        Tensors values;
        for (size_t t = first; t < std::min(first + group, step.inputs.size()); ++t)
          values.push_back(step.inputs[t].to(at::kCPU, c.dtype).to(at::kDouble));
        const Moments m = moments(values);
        if (m.count > 0) largest = std::max(largest, (m.mean.square() / m.var).max().item<double>());
      }
    }
    return 1 + largest;
  }
};

const auto sync = site_reference<Sync, SyncReference>(
    "sync", {Json::object(),
             {{"gradient", "own_tower"}},
             {{"gradient", "stopped"}},
             {{"variance", "averaged"}},
             {{"variance", "averaged"}, {"gradient", "stopped"}},
             {{"variance", "averaged"}, {"gradient", "own_tower"}},
             {{"variance", "averaged"}, {"route", "all_reduce"}},
             {{"variance", "averaged"}, {"route", "gather_activations"}, {"group_size", 2}},
             {{"moments", "e_x2"}},
             {{"moments", "e_x2"}, {"gradient", "own_tower"}},
             {{"group_size", 1}},
             {{"group_size", 2}},
             {{"group_size", 2}, {"gradient", "own_tower"}, {"momentum", nullptr}},
             {{"group_size", 2}, {"variance", "averaged"}},
             {{"group_size", 2}, {"moments", "e_x2"}},
             {{"weights", "equal"}},
             {{"weights", "equal"}, {"gradient", "own_tower"}},
             {{"weights", "equal"}, {"variance", "averaged"}},
             {{"weights", "equal"}, {"route", "all_reduce"}, {"group_size", 2}},
             {{"weights", "equal"}, {"route", "gather_activations"}},
             {{"weights", "equal"}, {"moments", "e_x2"}, {"normalise", "unbiased"}},
             {{"normalise", "unbiased"}},
             {{"normalise", "unbiased"}, {"variance", "averaged"}, {"group_size", 2}},
             {{"running", "zero_debias"}},
             {{"momentum", nullptr}},
             {{"affine", false}}});

}  // namespace
}  // namespace bnlab::reference
