// References of the strategies that wrap another one.
//   frozen   from training step from_step on normalised by the base's saved pair, which then stays
//   precise  trains as the base; the saved pair is that of all values of the last `batches` training steps:
//            their mean and variance, biased or not as the base remembers
#include <deque>

#include "strategies/reference/reference.hpp"

namespace bnlab::reference {
namespace {

class Wrapper : public Site {
 public:
  Wrapper(const Json& options, const Start& start) {
    const Json& base = options.at("base");
    Start inner = start;
    inner.strategy = base.at("name").get<std::string>();
    const auto reference = Registered<Reference>::create(base, {});
    const auto* with_site = dynamic_cast<const SiteReference*>(reference.get());
    base_ = with_site == nullptr ? nullptr : with_site->site(base, inner);
    if (!base_ || !base_->saved().mean.defined())
      refuse(start.strategy + ": the base " + inner.strategy + " has no running statistics");
  }

  Tensors train(const Tensors& x) override { return base_->train(x); }
  Tensors evaluate_batch(const Tensors& x) override { return base_->evaluate_batch(x); }
  Tensors evaluate(const Tensors& x, const Pair& pair) override { return base_->evaluate(x, pair); }
  Moments own_moments(const at::Tensor& sample) const override { return base_->own_moments(sample); }
  bool affine() const override { return base_->affine(); }
  Pair saved() const override { return base_->saved(); }
  std::vector<int64_t> permutation() const override { return base_->permutation(); }

 private:
  std::unique_ptr<Site> base_;
};

class Frozen : public Wrapper {
 public:
  Frozen(const Json& options, const Start& start)
      : Wrapper(options, start),
        passes_before_(options.at("from_step").is_null()
                           ? 0
                           : options.at("from_step").get<size_t>() * start.passes_per_step) {
    if (!options.at("from_fraction").is_null()) refuse("frozen: a fraction of a run of unknown length");
  }

  Tensors train(const Tensors& x) override {
    frozen_ = passes_done_++ >= passes_before_;
    return frozen_ ? evaluate(x, saved()) : Wrapper::train(x);
  }

  std::vector<int64_t> permutation() const override {
    return frozen_ ? std::vector<int64_t>{} : Wrapper::permutation();
  }

 private:
  size_t passes_before_, passes_done_ = 0;
  bool frozen_ = false;
};

class Precise : public Wrapper {
 public:
  Precise(const Json& options, const Start& start)
      : Wrapper(options, start),
        batches_(options.at("batches").get<size_t>()),
        passes_per_step_(start.passes_per_step),
        biased_(remembers_biased(options.at("base"))) {}

  Tensors train(const Tensors& x) override {
    Tensors y = Wrapper::train(x);
    if (passes_done_++ % passes_per_step_ == 0) values_.emplace_back();
    for (const at::Tensor& tower : x) values_.back().push_back(tower.detach());
    if (values_.size() > batches_) values_.pop_front();
    return y;
  }

  Pair saved() const override {
    Tensors all;
    for (const Tensors& batch : values_) all.insert(all.end(), batch.begin(), batch.end());
    const Moments merged = moments(all);
    if (merged.count == 0) return Wrapper::saved();
    const auto n = static_cast<double>(merged.count);
    return {merged.mean, biased_ ? merged.var : merged.var * (n / (n - 1))};
  }

 private:
  size_t batches_, passes_per_step_, passes_done_ = 0;
  bool biased_;
  std::deque<Tensors> values_;  // from the last batches, all their passes
};

const auto frozen = site_reference<Frozen>(
    "frozen", {Json::object(),
               {{"from_step", 2}},
               {{"from_step", 2}, {"base", "per_tower"}},
               {{"from_step", 1}, {"base", {{"name", "last_tower"}, {"momentum", nullptr}}}},
               {{"from_step", 2}, {"base", "every_tower"}, {"train_affine", true}},
               {{"from_step", 1}, {"base", {{"name", "batch_renorm"}, {"affine", false}}}},
               {{"from_step", 2}, {"base", {{"name", "shuffle"}}}},
               {{"from_step", 2}, {"base", {{"name", "ghost"}, {"virtual_batch", 3}}}},
               {{"base", "none"}},
               {{"from_fraction", 0.5}}});
const auto precise = site_reference<Precise>(
    "precise", {Json::object(),
                {{"batches", 1}},
                {{"batches", 2}, {"base", "per_tower"}},
                {{"batches", 2}, {"base", {{"name", "per_tower"}, {"running_variance", "biased"}}}},
                {{"base", {{"name", "sync"}, {"group_size", 2}}}},
                {{"base", {{"name", "averaged"}, {"merge", "pooled"}}}},
                {{"batches", 2}, {"base", "batch_renorm"}},
                {{"batches", 2}, {"base", {{"name", "batch_renorm"}, {"scope", "pooled"}}}},
                {{"base", "shuffle"}},
                {{"base", {{"name", "ghost"}, {"virtual_batch", 3}}}},
                {{"base", "group_norm"}}});

}  // namespace
}  // namespace bnlab::reference
