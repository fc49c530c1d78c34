// Reference of batch_renorm.
//   y = gamma ((x - m_b) / sqrt(v_b + eps) r + d) + beta, r and d constants of the step, from the running
//   statistics before the step's update: r = sqrt((v_b + eps) / (v + eps)), d = (m_b - m) / sqrt(v + eps)
#include <algorithm>

#include "strategies/reference/batch_norm.hpp"

namespace bnlab::reference {
namespace {

class BatchRenorm : public BatchNormSite {
 public:
  BatchRenorm(const Json& options, const Start& start)
      : BatchNormSite(options, start),
        pooled_(options.at("scope") == "pooled"),
        r_max_(options.at("r_max").get<double>()),
        d_max_(options.at("d_max").get<double>()),
        passes_per_step_(start.passes_per_step) {
    const Json schedule = options.at("schedule").is_null() ? Json::object() : options.at("schedule");
    const auto value = [&](const char* key, double otherwise) {
      const Json given = schedule.value(key, Json());
      return given.is_null() ? otherwise : given.get<double>();
    };
    if (value("start_fraction", -1) >= 0 || value("end_fraction", -1) >= 0)
      refuse("batch_renorm: fractions of a run of unknown length");
    start_ = value("start_step", 0);
    end_ = value("end_step", start_);
    if (end_ < start_) refuse("batch_renorm: the schedule ends before it starts");
  }

  Tensors train(const Tensors& x) override {
    const auto step = static_cast<double>(passes_done_++ / passes_per_step_);
    const double way = end_ > start_ ? std::clamp((step - start_) / (end_ - start_), 0.0, 1.0)
                                     : static_cast<double>(step >= end_);
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

  // The pair feeds training, so every rank knows the moments of all towers.
  void remember(const Tensors& x) override { remember_mean_of(written(sets(x))); }

  Tensors normalised(const Tensors& x) const override {
    const Moments all = moments(x);
    if (!pooled_ || all.count == 0) return BatchNormSite::normalised(x);
    Tensors y;
    for (const at::Tensor& tower : x) y.push_back(standardise(tower, all.mean, all.var, eps()));
    return y;
  }

 private:
  bool pooled_;
  double r_max_, d_max_, start_ = 0, end_ = 0;
  size_t passes_per_step_, passes_done_ = 0;
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

}  // namespace
}  // namespace bnlab::reference
