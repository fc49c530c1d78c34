// References of the strategies that keep no statistics: none, and normalisation inside each sample.
//   y = gamma (x - m) / sqrt(v + eps) + beta, m and v over one sample's group of channels and all positions
#include "strategies/reference/reference.hpp"

namespace bnlab::reference {
namespace {

class None : public Site {
 public:
  None(const Json&, const Start&) {}
  Tensors train(const Tensors& x) override { return x; }
  Tensors evaluate_batch(const Tensors& x) override { return x; }
  Tensors evaluate(const Tensors& x, const Pair&) override { return x; }
  bool affine() const override { return false; }
};

class SampleNorm : public Site {
 public:
  SampleNorm(const Json& options, const Start& start, int64_t groups)
      : strategy_(start.strategy),
        groups_(groups),
        eps_(options.at("eps").get<double>()),
        affine_(options.at("affine").get<bool>()) {
    if (start.channels % groups != 0) refuse(strategy_ + ": the groups do not divide the channels");
  }

  Tensors train(const Tensors& x) override {
    for (const at::Tensor& tower : x) {
      if (tower.size(0) > 0 && tower[0].numel() == groups_) {
        refuse("more than 1 value per channel is needed to normalise (site site, strategy " + strategy_ +
               ", set of 1)");
      }
    }
    return normalised(x);
  }

  Tensors evaluate_batch(const Tensors& x) override { return normalised(x); }
  Tensors evaluate(const Tensors& x, const Pair&) override { return normalised(x); }
  bool affine() const override { return affine_; }

 private:
  Tensors normalised(const Tensors& x) const {
    Tensors y;
    for (const at::Tensor& tower : x) {
      if (tower.numel() == 0) {
        y.push_back(tower);
        continue;
      }
      const at::Tensor grouped = tower.reshape({tower.size(0), groups_, -1});
      const at::Tensor centred = grouped - grouped.mean(2, /*keepdim=*/true);
      const at::Tensor var = centred.square().mean(2, /*keepdim=*/true);
      y.push_back((centred / (var + eps_).sqrt()).reshape(tower.sizes()));
    }
    return y;
  }

  std::string strategy_;
  int64_t groups_;
  double eps_;
  bool affine_;
};

class GroupNorm : public SampleNorm {
 public:
  GroupNorm(const Json& options, const Start& start) : SampleNorm(options, start, groups(options, start)) {}

 private:
  static int64_t groups(const Json& options, const Start& start) {
    if (options.at("channels_per_group").is_null()) return options.at("groups").get<int64_t>();
    const auto each = options.at("channels_per_group").get<int64_t>();
    if (start.channels % each != 0) refuse("group_norm: the groups do not divide the channels");
    return start.channels / each;
  }
};

class LayerNorm : public SampleNorm {
 public:
  LayerNorm(const Json& options, const Start& start) : SampleNorm(options, start, 1) {}
};

class InstanceNorm : public SampleNorm {
 public:
  InstanceNorm(const Json& options, const Start& start) : SampleNorm(options, start, start.channels) {}
};

const auto none = site_reference<None>("none", {Json::object()});
const auto group_norm = site_reference<GroupNorm>("group_norm", {Json::object(),
                                                                 {{"groups", 2}},
                                                                 {{"groups", 5}},
                                                                 {{"channels_per_group", 2}},
                                                                 {{"channels_per_group", 1}},
                                                                 {{"groups", 4}, {"affine", false}}});
const auto layer_norm =
    site_reference<LayerNorm>("layer_norm", {Json::object(), {{"eps", 0.1}}, {{"affine", false}}});
const auto instance_norm =
    site_reference<InstanceNorm>("instance_norm", {Json::object(), {{"eps", 0.1}}, {{"affine", false}}});

}  // namespace
}  // namespace bnlab::reference
