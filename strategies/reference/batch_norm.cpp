// References of the BN family: normalising by own or pooled moments, and every rule of what is remembered.
//   y = gamma (x - m) / sqrt(v + eps) + beta
#include "strategies/reference/batch_norm.hpp"

#include <algorithm>

namespace bnlab::reference {

BatchNormSite::BatchNormSite(const Json& options, const Start& start)
    : strategy_(start.strategy),
      eps_(options.at("eps").get<double>()),
      affine_(options.at("affine").get<bool>()),
      running_(start.pair, options.at("momentum"), start.held, remembers_biased(options),
               options.at("running") == "zero_debias"),
      passes_(start.passes_per_step, start.statistics_per_step) {}

std::vector<Tensors> BatchNormSite::sets(const Tensors& x) const {
  std::vector<Tensors> all;
  for (const at::Tensor& tower : x) all.push_back({tower});
  return all;
}

Tensors BatchNormSite::normalised(const Tensors& x) const {
  Tensors y;
  for (const Tensors& set : sets(x)) {
    const Moments shared = moments(set);
    for (const at::Tensor& part : set)
      y.push_back(shared.count == 0 ? part : standardise(part, shared.mean, shared.var, eps_));
  }
  return y;
}

std::vector<Pair> BatchNormSite::written(const std::vector<Tensors>& sets) const {
  std::vector<Pair> all;
  for (const Tensors& set : sets) {
    const Moments of_set = moments(set);
    if (of_set.count > 0) all.push_back(running_.written(of_set));
  }
  return all;
}

void BatchNormSite::remember_tower(size_t tower, const Tensors& x) {
  std::vector<RunningPair::OfTower> all;
  for (const Pair& pair : written(std::vector<Tensors>{{x[tower]}})) all.push_back({tower, pair});
  running_.remember(all, /*in_turn=*/false);
}

void BatchNormSite::remember_sets_of_towers(const Tensors& x, bool in_turn) {
  std::vector<RunningPair::OfTower> all;
  for (size_t t = 0; t < x.size(); ++t) {
    for (const at::Tensor& set : sets_of_tower(x[t]))
      for (const Pair& pair : written(std::vector<Tensors>{{set}})) all.push_back({t, pair});
  }
  running_.remember(all, in_turn);
}

Tensors BatchNormSite::train(const Tensors& x) {
  for (const Tensors& set : sets(x)) {
    int64_t count = 0;
    for (const at::Tensor& part : set) count += elements(part);
    if (count == 1) {
      refuse("more than 1 value per channel is needed to normalise (site site, strategy " + strategy_ +
             ", set of 1)");
    }
  }
  passes_.add(x);
  Tensors y = normalised_in_training(x);
  if (const std::vector<Tensors> remembered = passes_.remembered(); !remembered.empty())
    remember(joined(remembered));
  return y;
}

Tensors BatchNormSite::evaluate(const Tensors& x, const Pair& pair) {
  Tensors y;
  for (const at::Tensor& tower : x) y.push_back(standardise(tower, pair.mean, pair.var, eps_));
  return y;
}

int64_t existing_tower(const Json& option, const Start& start) {
  const auto tower = option.get<int64_t>();
  if (tower >= static_cast<int64_t>(start.towers))
    refuse(start.strategy + ": there is no tower " + std::to_string(tower));
  return tower;
}

namespace {

class FromOneTower : public BatchNormSite {
 public:
  FromOneTower(const Json& options, const Start& start, int64_t tower)
      : BatchNormSite(options, start), tower_(static_cast<size_t>(tower)) {}

 protected:
  void remember(const Tensors& x) override { remember_tower(tower_, x); }

 private:
  size_t tower_;
};

class PerTower : public FromOneTower {
 public:
  PerTower(const Json& options, const Start& start)
      : FromOneTower(options, start, existing_tower(options.at("saved_tower"), start)) {}
};

class SingleTower : public FromOneTower {
 public:
  SingleTower(const Json& options, const Start& start)
      : FromOneTower(options, start, existing_tower(options.at("tower"), start)) {}
};

class LastTower : public FromOneTower {
 public:
  LastTower(const Json& options, const Start& start)
      : FromOneTower(options, start, static_cast<int64_t>(start.towers) - 1) {}
};

class EveryTower : public BatchNormSite {
 public:
  using BatchNormSite::BatchNormSite;

 protected:
  void remember(const Tensors& x) override { remember_sets_of_towers(x, /*in_turn=*/true); }
};

// Earlier passes of the step stand in the moments as constants.
class Cmbn : public FromOneTower {
 public:
  Cmbn(const Json& options, const Start& start)
      : FromOneTower(options, start, existing_tower(options.at("saved_tower"), start)) {}

 protected:
  Tensors normalised_in_training(const Tensors& x) const override {
    Tensors y;
    for (size_t t = 0; t < x.size(); ++t) {
      Tensors so_far;
      for (const Tensors& pass : passes().passes()) so_far.push_back(pass[t]);
      so_far.back() = x[t];
      const Moments shared = moments(so_far);
      y.push_back(shared.count == 0 ? x[t] : standardise(x[t], shared.mean, shared.var, eps()));
    }
    return y;
  }

  void remember(const Tensors&) override { FromOneTower::remember(joined(passes().passes())); }
};

class Averaged : public BatchNormSite {
 public:
  Averaged(const Json& options, const Start& start)
      : BatchNormSite(options, start), pooled_(options.at("merge") == "pooled") {}

 protected:
  void remember(const Tensors& x) override { pooled_ ? remember_pooled(x) : BatchNormSite::remember(x); }

 private:
  bool pooled_;
};

const auto per_tower = site_reference<PerTower>("per_tower", {Json::object(),
                                                              {{"saved_tower", 1}},
                                                              {{"momentum", nullptr}},
                                                              {{"running_variance", "biased"}},
                                                              {{"running", "zero_debias"}},
                                                              {{"affine", false}},
                                                              {{"eps", 0.1}}});
const auto single_tower = site_reference<SingleTower>("single_tower", {Json::object(), {{"tower", 1}}});
const auto last_tower = site_reference<LastTower>("last_tower", {Json::object(), {{"momentum", nullptr}}});
const auto every_tower =
    site_reference<EveryTower>("every_tower", {Json::object(),
                                               {{"momentum", nullptr}},
                                               {{"momentum", 1}},
                                               {{"running", "zero_debias"}, {"running_variance", "biased"}}});
const auto cmbn = site_reference<Cmbn>(
    "cmbn", {Json::object(), {{"saved_tower", 1}}, {{"momentum", nullptr}}, {{"affine", false}}});
const auto averaged =
    site_reference<Averaged>("averaged", {Json::object(),
                                          {{"merge", "pooled"}},
                                          {{"merge", "pooled"}, {"running_variance", "biased"}},
                                          {{"momentum", nullptr}},
                                          {{"running", "zero_debias"}},
                                          {{"merge", "pooled"}, {"momentum", nullptr}}});

}  // namespace
}  // namespace bnlab::reference
