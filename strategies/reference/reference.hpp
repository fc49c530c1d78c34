// What the float64 references share: one site in plain formulas on all towers at once, its gradients by
// LibTorch's autograd of that forward. A reference says what a strategy must answer, so it uses nothing of
// the engine that computes the answers: moments are means over the values themselves.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/verify/reference.hpp"

namespace bnlab::reference {

using Tensors = std::vector<at::Tensor>;  // one per tower, [n_t, C, ...], float64
using NamedTensors = std::map<std::string, at::Tensor>;

// Of a set of values, [C] each; autograd passes through them.
struct Moments {
  int64_t count = 0;  // per channel
  at::Tensor mean;
  at::Tensor var;  // biased
};

// Over all values of all `parts`; without any, mean and var stay undefined.
Moments moments(const Tensors& parts);
int64_t elements(const at::Tensor& x);                      // per channel
at::Tensor per_channel(const at::Tensor& v, int64_t dims);  // [C] -> [1, C, 1, ...]
at::Tensor standardise(const at::Tensor& x, const at::Tensor& mean, const at::Tensor& var, double eps);
[[noreturn]] void refuse(const std::string& message);

struct Pair {
  at::Tensor mean, var;  // [C]; undefined: the strategy has none
};

// The running statistics of one site.
class RunningPair {
 public:
  // held: the precision that holds the statistics; momentum null: the k-th update weighs 1/k; biased: which
  // variance is remembered; zero_debias: the start weighs nothing, so that the k-th update of weight a weighs
  // a among the 1 - (1 - a)^k of all.
  RunningPair(const Pair& start, const Json& momentum, at::ScalarType held, bool biased = false,
              bool zero_debias = false);

  // What an update writes for a set: its mean and variance, NaN where the held precision has no number.
  Pair written(const Moments& set) const;
  // The updates of one training step, in turn. Channels that are not finite in any of them stay as they were.
  void remember(const std::vector<Pair>& updates);
  // The same of sets that belong to one tower each, in turn or as one update with their plain mean. Each
  // tower also has a pair of its own, which its finite sets alone have updated, with the weight of the step.
  // It stands in for a set that is not finite, in those channels.
  struct OfTower {
    size_t tower;
    Pair written;
  };
  void remember(const std::vector<OfTower>& sets, bool in_turn);
  const Pair& pair() const { return pair_; }

 private:
  double next_weight();

  Pair pair_;
  Pair start_;
  std::map<size_t, Pair> of_towers_;
  std::optional<double> momentum_;
  at::ScalarType held_;
  bool biased_, zero_debias_;
  int64_t updates_ = 0;
  double weighs_ = 0;  // all updates so far, with zero_debias
};

// Of the strategy's options: whether the biased variance is remembered.
bool remembers_biased(const Json& options);

// The plain mean; no update at all where there is nothing to average.
std::vector<Pair> mean_of(const std::vector<Pair>& pairs);

// The values that the towers have had in the passes of a training step so far.
class PassesOfStep {
 public:
  PassesOfStep(size_t passes_per_step, bool statistics_per_step)
      : per_step_(passes_per_step), remembered_once_(statistics_per_step) {}

  void add(const Tensors& x);  // after the last pass of a step, one of the next
  const std::vector<Tensors>& passes() const { return passes_; }
  // What the pass that was added last gives to the running statistics: itself, or in a step's last pass all
  // of them, or nothing yet.
  std::vector<Tensors> remembered() const;

 private:
  size_t per_step_;
  bool remembered_once_;
  std::vector<Tensors> passes_;
};

// The values of every tower in these passes together.
Tensors joined(const std::vector<Tensors>& passes);

// What a site is given at the start of a case.
struct Start {
  std::string strategy;  // for messages
  size_t towers = 0;
  int64_t channels = 0;
  uint64_t seed = 0;
  at::ScalarType held = at::kDouble;  // the statistics' precision
  Pair pair;                          // running statistics, float64
  NamedTensors parameters = {};       // as given, but for weight and bias
  Activation activation = Activation::none;
  size_t passes_per_step = 1;
  bool statistics_per_step = false;

  // The parameter as `held` rounds it; a leaf of autograd.
  at::Tensor parameter(const std::string& name, const at::Tensor& otherwise) const;
};

// A site from step to step. The functions give the normalised values, before weight, bias and activation.
class Site {
 public:
  virtual ~Site() = default;
  virtual Tensors train(const Tensors& x) = 0;
  virtual Tensors evaluate_batch(const Tensors& x) = 0;
  virtual Tensors evaluate(const Tensors& x, const Pair& pair) = 0;  // by these running statistics
  // What a sample of its own has in a mixture with the saved pair.
  virtual Moments own_moments(const at::Tensor& sample) const { return moments({sample}); }
  virtual bool affine() const = 0;
  virtual const NamedTensors& parameters() const;  // beside weight and bias: none
  virtual at::Tensor activated(const at::Tensor& y, Activation activation) const;
  virtual Pair saved() const { return {}; }
  virtual std::vector<int64_t> permutation() const { return {}; }  // in the last training step
};

using MakeSite = std::function<std::unique_ptr<Site>(const Json& options, const Start& start)>;

// A strategy whose site is a norm site.
class SiteReference : public Reference {
 public:
  SiteReference(MakeSite make_site, std::vector<Json> variants)
      : make_site_(std::move(make_site)), variants_(std::move(variants)) {}

  LayerAnswer answer(const LayerCase& layer_case) const override;
  std::vector<Json> variants() const override { return variants_; }
  std::unique_ptr<Site> site(const Json& options, const Start& start) const {
    return make_site_(options, start);
  }

 private:
  MakeSite make_site_;
  std::vector<Json> variants_;
};

About about(const std::string& strategy);

template <class S, class R = SiteReference>
Registered<Reference> site_reference(const std::string& strategy, const std::vector<Json>& variants) {
  return {about(strategy), [variants](const Json&, const Reference::Context&) {
            return std::make_unique<R>(
                [](const Json& options, const Start& start) { return std::make_unique<S>(options, start); },
                variants);
          }};
}

// Of the sum over towers of y dy with respect to the leaves; without dy: undefined ones.
Tensors gradients(const Tensors& y, const Tensors& dy, const Tensors& leaves);

// `given` as `precision` rounds it, in float64; a leaf of autograd.
at::Tensor leaf(const at::Tensor& given, at::ScalarType precision);
Tensors leaves(const Tensors& given, at::ScalarType precision);  // undefined ones stay undefined

}  // namespace bnlab::reference
