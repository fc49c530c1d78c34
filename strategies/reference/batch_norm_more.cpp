// References of the BN strategies that do more than choose sets and what is remembered.
//   batch_renorm  y = gamma ((x - m_b) / sqrt(v_b + eps) r + d) + beta, r and d constants of the step
//   ghost         own moments of every `virtual_batch` consecutive samples of a tower
//   shuffle       own moments of the places of a permuted global batch
#include <algorithm>

#include "harness/random.hpp"
#include "strategies/reference/batch_norm.hpp"

namespace bnlab::reference {
namespace {

class BatchRenorm : public BatchNormSite {
 public:
  BatchRenorm(const Json& options, const Start& start)
      : BatchNormSite(options, start),
        pooled_(options.at("scope") == "pooled"),
        r_max_(options.at("r_max").get<double>()),
        d_max_(options.at("d_max").get<double>()) {
    const Json schedule = options.at("schedule").is_null() ? Json::object() : options.at("schedule");
    const auto value = [&](const char* key, double otherwise) {
      const Json given = schedule.value(key, Json());
      return given.is_null() ? otherwise : given.get<double>();
    };
    if (value("start_fraction", -1) >= 0 || value("end_fraction", -1) >= 0) {
      refuse("batch_renorm: fractions of a run of unknown length");
    }
    start_ = value("start_step", 0);
    end_ = value("end_step", start_);
    if (end_ < start_) {
      refuse("batch_renorm: the schedule ends before it starts");
    }
  }

  Tensors train(const Tensors& x) override {
    const double way = end_ > start_ ? std::clamp((step_ - start_) / (end_ - start_), 0.0, 1.0)
                                     : static_cast<double>(step_ >= end_);
    ++step_;
    const double r_max = 1 + way * (r_max_ - 1), d_max = way * d_max_;
    const Pair running = saved();  // before this step's update
    Tensors y = BatchNormSite::train(x);
    const at::Tensor deviation = (running.var + eps()).sqrt();
    for (size_t t = 0; t < x.size(); ++t) {
      const Moments batch = moments(pooled_ ? x : Tensors{x[t]});
      if (batch.count > 0) {
        const at::Tensor r = ((batch.var + eps()).sqrt() / deviation).clamp(1 / r_max, r_max).detach();
        const at::Tensor d = ((batch.mean - running.mean) / deviation).clamp(-d_max, d_max).detach();
        y[t] = y[t] * per_channel(r, y[t].dim()) + per_channel(d, y[t].dim());
      }
    }
    return y;
  }

 protected:
  std::vector<Tensors> sets(const Tensors& x) const override {
    return pooled_ ? std::vector<Tensors>{x} : BatchNormSite::sets(x);
  }

  Tensors normalised(const Tensors& x) const override {
    const Moments all = moments(x);
    if (!pooled_ || all.count == 0) {
      return BatchNormSite::normalised(x);
    }
    Tensors y;
    for (const at::Tensor& tower : x) {
      y.push_back(standardise(tower, all.mean, all.var, eps()));
    }
    return y;
  }

 private:
  bool pooled_;
  double r_max_, d_max_, start_ = 0, end_ = 0;
  double step_ = 0;
};

class Ghost : public BatchNormSite {
 public:
  Ghost(const Json& options, const Start& start)
      : BatchNormSite(options, start), virtual_batch_(options.at("virtual_batch").get<int64_t>()) {}

  Tensors train(const Tensors& x) override {
    for (const at::Tensor& tower : x) {
      if (tower.size(0) % virtual_batch_ != 0) {
        refuse("ghost: virtual_batch does not divide the samples of a tower");
      }
    }
    return BatchNormSite::train(x);
  }

 protected:
  std::vector<Tensors> sets(const Tensors& x) const override {
    std::vector<Tensors> all;
    for (const at::Tensor& tower : x) {
      for (const at::Tensor& part : tower.split(virtual_batch_)) {
        all.push_back({part});
      }
    }
    return all;
  }

  Tensors normalised(const Tensors& x) const override {
    Tensors y;
    for (const at::Tensor& tower : x) {
      const Tensors parts = tower.split(virtual_batch_);
      y.push_back(at::cat(BatchNormSite::normalised(parts)));
    }
    return y;
  }

 private:
  int64_t virtual_batch_;
};

class Shuffle : public BatchNormSite {
 public:
  Shuffle(const Json& options, const Start& start)
      : BatchNormSite(options, start),
        tower_(static_cast<size_t>(existing_tower(options.at("saved_tower"), start))),
        seed_(start.seed) {}

  Tensors train(const Tensors& x) override {
    const at::Tensor rows = at::cat(x);
    std::vector<int64_t> sizes;
    for (const at::Tensor& tower : x) {
      sizes.push_back(tower.size(0));
    }
    permutation_ = Stream(seed_, "shuffle", step_++).permutation(rows.size(0));
    const at::Tensor order = at::tensor(permutation_, at::kLong);
    const Tensors shuffled = rows.index_select(0, order).split_with_sizes(sizes);
    const at::Tensor y = at::cat(BatchNormSite::train(shuffled));
    return y.index_select(0, order.argsort()).split_with_sizes(sizes);
  }

  std::vector<int64_t> permutation() const override { return permutation_; }

 protected:
  std::vector<Pair> updates(const Tensors& shuffled) const override { return written({{shuffled[tower_]}}); }

 private:
  size_t tower_;
  uint64_t seed_;
  uint64_t step_ = 0;
  std::vector<int64_t> permutation_;
};

const auto batch_renorm = site_reference<BatchRenorm>(
    "batch_renorm", {Json::object(),
                     {{"scope", "pooled"}},
                     {{"r_max", 1.25}, {"d_max", 0.5}},
                     {{"r_max", 1.25}, {"d_max", 0.5}, {"scope", "pooled"}, {"momentum", nullptr}},
                     {{"schedule", nullptr}, {"r_max", 1}, {"d_max", 0}},
                     {{"schedule", {{"start_step", 1}, {"end_step", 3}}}},
                     {{"schedule", {{"end_step", 2}}}, {"scope", "pooled"}, {"affine", false}},
                     {{"schedule", {{"start_fraction", 0.1}}}}});
const auto ghost = site_reference<Ghost>("ghost", {Json::object(),
                                                   {{"virtual_batch", 1}},
                                                   {{"virtual_batch", 3}},
                                                   {{"virtual_batch", 3}, {"momentum", nullptr}},
                                                   {{"virtual_batch", 4}}});
const auto shuffle = site_reference<Shuffle>(
    "shuffle", {Json::object(), {{"saved_tower", 1}}, {{"momentum", nullptr}}, {{"affine", false}}});

}  // namespace
}  // namespace bnlab::reference
