// Reference of filter_response_norm.
//   y = gamma x / sqrt(nu2 + eps) + beta, nu2 = mean of x^2 over the positions of one sample and channel
//   z = max(y, tau) in the place of ReLU
#include "strategies/reference/reference.hpp"

namespace bnlab::reference {
namespace {

class FilterResponse : public Site {
 public:
  FilterResponse(const Json& options, const Start& start)
      : eps_(options.at("eps").get<double>()), affine_(options.at("affine").get<bool>()) {
    if (options.at("threshold").get<bool>() && start.activation == Activation::relu)
      parameters_["threshold"] = start.parameter("threshold", at::zeros({start.channels}, at::kDouble));
  }

  Tensors train(const Tensors& x) override {
    for (const at::Tensor& tower : x) {
      if (tower.size(0) > 0 && tower[0].numel() == tower.size(1)) {
        refuse(
            "more than 1 value per channel is needed to normalise (site site, strategy "
            "filter_response_norm, set of 1)");
      }
    }
    return evaluate_batch(x);
  }

  Tensors evaluate_batch(const Tensors& x) override {
    Tensors y;
    for (const at::Tensor& tower : x) {
      if (tower.numel() == 0) {
        y.push_back(tower);
        continue;
      }
      const at::Tensor flat = tower.reshape({tower.size(0), tower.size(1), -1});
      const at::Tensor mean_square = (flat * flat).sum(2, true) / static_cast<double>(flat.size(2));
      y.push_back((flat / (mean_square + eps_).sqrt()).reshape(tower.sizes()));
    }
    return y;
  }

  Tensors evaluate(const Tensors& x, const Pair&) override { return evaluate_batch(x); }
  bool affine() const override { return affine_; }
  const NamedTensors& parameters() const override { return parameters_; }
  at::Tensor activated(const at::Tensor& y, Activation activation) const override {
    return parameters_.empty() ? Site::activated(y, activation)
                               : at::maximum(y, per_channel(parameters_.at("threshold"), y.dim()));
  }

 private:
  double eps_;
  bool affine_;
  NamedTensors parameters_;
};

const auto filter_response_norm =
    site_reference<FilterResponse>("filter_response_norm", {Json::object(),
                                                            {{"threshold", false}},
                                                            {{"eps", 0.1}},
                                                            {{"affine", false}},
                                                            {{"affine", false}, {"threshold", false}}});

}  // namespace
}  // namespace bnlab::reference
