// Reference of norm_batch: the samples of the global batch in order, every `samples` of them one set.
#include "strategies/reference/batch_norm.hpp"

namespace bnlab::reference {
namespace {

class NormBatch : public BatchNormSite {
 public:
  NormBatch(const Json& options, const Start& start)
      : BatchNormSite(options, start), samples_(options.at("samples").get<int64_t>()) {}

  Tensors train(const Tensors& x) override {
    const bool whole_towers =
        std::ranges::all_of(x, [&](const at::Tensor& tower) { return tower.size(0) % samples_ == 0; });
    towers_ = whole_towers ? 1 : towers_of_a_set(x);
    return BatchNormSite::train(x);
  }

 protected:
  // The parts of a set: of one tower, or whole towers. An evaluation may end with a smaller set.
  std::vector<Tensors> sets(const Tensors& x) const override {
    std::vector<Tensors> all;
    for (size_t first = 0; first < x.size(); first += towers_) {
      if (towers_ > 1) {
        all.emplace_back(x.begin() + static_cast<std::ptrdiff_t>(first),
                         x.begin() + static_cast<std::ptrdiff_t>(first + towers_));
        continue;
      }
      for (const at::Tensor& part : x[first].split(samples_)) all.push_back({part});
    }
    return all;
  }

  Tensors normalised(const Tensors& x) const override {
    Tensors rows;
    for (const Tensors& set : sets(x)) {
      const Moments m = moments(set);
      const at::Tensor all = at::cat(set);
      rows.push_back(m.count == 0 ? all : standardise(all, m.mean, m.var, eps()));
    }
    std::vector<int64_t> sizes;
    for (const at::Tensor& tower : x) sizes.push_back(tower.size(0));
    return at::cat(rows).split_with_sizes(sizes);
  }

  Tensors sets_of_tower(const at::Tensor& tower) const override { return tower.split(samples_); }

  // A set that lies on several towers is remembered as one, else every tower's by themselves.
  void remember(const Tensors& x) override {
    if (towers_ == 1) {
      BatchNormSite::remember(x);
      return;
    }
    remember_mean_of(written(sets(x)));
  }

 private:
  // The smallest number of neighbouring towers that hold one set each time.
  size_t towers_of_a_set(const Tensors& x) const {
    int64_t filled = 0;
    size_t group = 0;
    while (group < x.size() && filled < samples_) filled += x[group++].size(0);
    // Empty towers behind them may belong to the group.
    for (; group <= x.size(); ++group) {
      bool fits = x.size() % group == 0;
      for (size_t t = 0, sum = 0; fits && t < x.size(); ++t) {
        sum += static_cast<size_t>(x[t].size(0));
        if ((t + 1) % group == 0) {
          fits = sum == static_cast<size_t>(samples_);
          sum = 0;
        }
      }
      if (fits) return group;
    }
    refuse("norm_batch: the samples do not fit the towers");
  }

  int64_t samples_;
  size_t towers_ = 1;
};

const auto norm_batch = site_reference<NormBatch>("norm_batch", {Json::object(),
                                                                 {{"samples", 1}},
                                                                 {{"samples", 2}},
                                                                 {{"samples", 3}},
                                                                 {{"samples", 6}},
                                                                 {{"samples", 12}},
                                                                 {{"samples", 12}, {"momentum", nullptr}},
                                                                 {{"samples", 18}},
                                                                 {{"samples", 18}, {"momentum", nullptr}},
                                                                 {{"samples", 36}, {"affine", false}}});

}  // namespace
}  // namespace bnlab::reference
