// Reference of mabn, at its norm sites.
//   z = x / sqrt(X + eps), X the mean of the tower's E[x^2] over its last steps, or at first that of the step
//   y = gamma r z + beta, r = clip(sqrt(X + eps) / sqrt(running + eps), 1 / r_max, r_max) or 1
//   dx = (g - z P) / sqrt(X + eps), g the gradient of z, P the mean of the tower's E[g z] over its last steps
// X, r and P are constants; autograd passes through z by a hook that takes z P off.
#include <cmath>
#include <deque>
#include <map>
#include <numeric>

#include "strategies/reference/reference.hpp"

namespace bnlab::reference {
namespace {

at::Tensor second_moment(const at::Tensor& x) {
  const Moments of = moments({x});
  return (of.var + of.mean.square()).detach();
}

// The last values of one tower, channel by channel; those that are not finite do not enter.
class Window {
 public:
  // The number of values that have entered, [C], with those of `value`.
  at::Tensor enter(const at::Tensor& value, size_t size) {
    channels_.resize(static_cast<size_t>(value.size(0)));
    counts_ = (counts_.defined() ? counts_ : at::zeros_like(value)) + value.isfinite().to(at::kDouble);
    for (size_t c = 0; c < channels_.size(); ++c) {
      const double of_channel = value[static_cast<int64_t>(c)].item<double>();
      if (std::isfinite(of_channel)) channels_[c].push_back(of_channel);
      if (channels_[c].size() > size) channels_[c].pop_front();
    }
    return counts_;
  }
  at::Tensor mean() const {
    at::Tensor means = at::zeros_like(counts_);
    for (size_t c = 0; c < channels_.size(); ++c) {
      const double sum = std::accumulate(channels_[c].begin(), channels_[c].end(), 0.0);
      means[static_cast<int64_t>(c)] = sum / static_cast<double>(channels_[c].size());
    }
    return means;
  }

 private:
  std::vector<std::deque<double>> channels_;
  at::Tensor counts_;
};

class Mabn : public Site {
 public:
  Mabn(const Json& options, const Start& start)
      : window_(options.at("window").get<size_t>()),
        warmup_(options.at("warmup_steps").get<int64_t>()),
        renorm_(options.at("renorm_from_step").get<int64_t>()),
        r_max_(options.at("r_max").get<double>()),
        eps_(options.at("eps").get<double>()),
        affine_(options.at("affine").get<bool>()),
        momentum_(options.at("momentum")),
        running_(start.pair, momentum_, start.held, /*biased=*/true),
        start_(start.pair.var),
        remembers_once_(start.statistics_per_step && start.passes_per_step > 1) {}

  Tensors train(const Tensors& x) override {
    if (remembers_once_) {
      refuse(
          "statistics_per: mabn writes its running statistics in every micro-batch, since they correct the "
          "next one; expected \"micro_batch\"");
    }
    Tensors y;
    std::vector<RunningPair::OfTower> written;
    std::vector<std::pair<size_t, at::Tensor>> seconds;
    for (size_t t = 0; t < x.size(); ++t) {
      if (elements(x[t]) == 0) {
        y.push_back(x[t]);
        continue;
      }
      const at::Tensor own = second_moment(x[t]), steps = squares_[t].enter(own, window_);
      const at::Tensor moving = own.isfinite() & (steps > static_cast<double>(window_)) & (steps >= warmup_);
      const at::Tensor second = at::where(moving, squares_[t].mean(), own),
                       deviation = (second + eps_).sqrt();
      const at::Tensor before = of_towers_.try_emplace(t, start_).first->second;
      const at::Tensor r =
          at::where(own.isfinite() & (steps > renorm_) & (steps > warmup_),
                    (deviation / (before + eps_).sqrt()).clamp(1 / r_max_, r_max_), at::ones_like(deviation));
      y.push_back(normalised(x[t], deviation, t, moving) * per_channel(r, x[t].dim()));
      written.push_back({t, running_.written({elements(x[t]), at::zeros_like(second), second})});
      seconds.emplace_back(t, second);
    }
    if (!seconds.empty()) {
      const double a = momentum_.is_null() ? 1.0 / static_cast<double>(++updates_) : momentum_.get<double>();
      for (const auto& [t, second] : seconds) {
        at::Tensor& own = of_towers_.at(t);
        own = at::where(second.isfinite(), (1 - a) * own + a * second, own);
      }
    }
    running_.remember(written, /*in_turn=*/false);
    return y;
  }

  // By the batch itself, as in the first step.
  Tensors evaluate_batch(const Tensors& x) override {
    Tensors y;
    for (const at::Tensor& tower : x) {
      const Moments of = moments({tower});
      y.push_back(of.count == 0
                      ? tower
                      : tower / per_channel((of.var + of.mean.square() + eps_).sqrt(), tower.dim()));
    }
    return y;
  }

  Tensors evaluate(const Tensors& x, const Pair& pair) override {
    Tensors y;
    for (const at::Tensor& tower : x) y.push_back(standardise(tower, pair.mean, pair.var, eps_));
    return y;
  }

  Moments own_moments(const at::Tensor& sample) const override {
    return {elements(sample), at::zeros({sample.size(1)}, sample.options()), second_moment(sample)};
  }
  bool affine() const override { return affine_; }
  Pair saved() const override { return running_.pair(); }

 private:
  // z of one tower, whose gradient meets the tower's window on its way to x.
  at::Tensor normalised(const at::Tensor& x, const at::Tensor& deviation, size_t tower,
                        const at::Tensor& moving) {
    const at::Tensor z = x / per_channel(deviation, x.dim());
    if (z.requires_grad()) {
      const at::Tensor constant = z.detach();
      z.register_hook([this, constant, tower, moving](const at::Tensor& g) {
        const Moments of = moments({g * constant});
        products_[tower].enter(of.mean, window_);
        return g - constant * per_channel(at::where(moving, products_[tower].mean(), of.mean), g.dim());
      });
    }
    return z;
  }

  size_t window_;
  int64_t warmup_, renorm_;
  double r_max_, eps_;
  bool affine_;
  Json momentum_;
  RunningPair running_;
  at::Tensor start_;
  bool remembers_once_;
  std::map<size_t, Window> squares_, products_;
  std::map<size_t, at::Tensor> of_towers_;  // running second moments of single towers
  int64_t updates_ = 0;
};

const auto mabn = site_reference<Mabn>(
    "mabn", {Json::object(),
             {{"window", 1}, {"warmup_steps", 0}},
             {{"window", 2}, {"warmup_steps", 0}, {"renorm_from_step", 1}, {"r_max", 1.1}},
             {{"window", 2}, {"warmup_steps", 3}, {"renorm_from_step", 0}, {"momentum", nullptr}},
             {{"window", 1}, {"warmup_steps", 0}, {"affine", false}, {"eps", 0.1}}});

}  // namespace
}  // namespace bnlab::reference
