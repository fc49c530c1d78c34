// The outline of a model's network: names and shapes of its parameters and its sites, without numbers, so
// that the largest networks are counted in no time.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "harness/models/model.hpp"
#include "tests/models/one_rank_network.hpp"

namespace bnlab {

class Outline : public LayerMaker {
 public:
  explicit Outline(const Json& model, int64_t classes = 5, const ImageSizes& image_sizes = {})
      : network_(Registered<Model>::create(resolved_component("model", model), {image_sizes})
                     ->build(*this, classes)) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override {
    norms_.push_back(site);
    return std::make_shared<Shapes>(std::vector<int64_t>{site.channels}, site.channels);
  }
  std::shared_ptr<Layer> conv(const ConvSite& site) override {
    convs_.push_back(site);
    return std::make_shared<Shapes>(std::vector<int64_t>{site.out, site.in, site.kernel, site.kernel},
                                    site.bias || !site.norm_follows ? site.out : 0);
  }

  int64_t parameters(const std::string& prefix = "") const {
    int64_t count = 0;
    for (const auto& [name, tensor] : network_->named_parameters().pairs())
      count += name.rfind(prefix, 0) == 0 ? tensor.numel() : 0;
    return count;
  }
  bool has(const std::string& parameter) const { return network_->named_parameters().contains(parameter); }
  // The site of this name; a site without channels where there is none.
  ConvSite conv_at(const std::string& name) const {
    for (const ConvSite& site : convs_)
      if (site.name == name) return site;
    return {};
  }

  Part part_of(const std::string& name) const { return network_->part_of(name); }
  const std::vector<NormSite>& norms() const { return norms_; }
  const std::vector<ConvSite>& convs() const { return convs_; }

 private:
  class Shapes : public Layer {
   public:
    Shapes(const std::vector<int64_t>& weight, int64_t bias) {
      register_parameter("weight", at::empty(weight, at::kMeta), /*requires_grad=*/false);
      if (bias > 0) register_parameter("bias", at::empty({bias}, at::kMeta), /*requires_grad=*/false);
    }
    at::Tensor forward(at::Tensor x, at::Tensor, const Pass&) override { return x; }
  };

  std::vector<NormSite> norms_;
  std::vector<ConvSite> convs_;
  std::shared_ptr<Network> network_;  // the last member: it is built when the others are there
};

}  // namespace bnlab
