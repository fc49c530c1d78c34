// Reference of channel_rms: y = gamma x / sqrt(mean of x^2 over the channels of a position + eps) + beta.
#include "strategies/reference/reference.hpp"

namespace bnlab::reference {
namespace {

class ChannelRms : public Site {
 public:
  ChannelRms(const Json& options, const Start&) : eps_(options.at("eps").get<double>()) {}

  Tensors train(const Tensors& x) override { return evaluate_batch(x); }
  Tensors evaluate(const Tensors& x, const Pair&) override { return evaluate_batch(x); }
  Tensors evaluate_batch(const Tensors& x) override {
    Tensors y;
    for (const at::Tensor& tower : x) {
      const at::Tensor mean_square = (tower * tower).sum(1, true) / static_cast<double>(tower.size(1));
      y.push_back(tower / (mean_square + eps_).sqrt());
    }
    return y;
  }
  bool affine() const override { return true; }

 private:
  double eps_;
};

const auto channel_rms = site_reference<ChannelRms>("channel_rms", {Json::object(), {{"eps", 0.1}}});

}  // namespace
}  // namespace bnlab::reference
