// filter_response_norm: every channel of a sample is divided by its root mean square over the positions, and
// the activation behind it is max(y, tau) with a learned tau per channel (FRN and TLU, Singh and Krishnan
// 2020). engine/filter_response.cpp computes it, forward and backward. Not built is the paper's learned eps,
// which it wants for maps of one position; such sites are refused in training.
#include "strategies/engine/filter_response.hpp"

#include <torch/types.h>

#include "harness/components/registry.hpp"
#include "harness/strategy.hpp"

namespace bnlab::filter_response_norm {

class FilterResponse : public Strategy {
 public:
  struct Options {
    bool threshold = true;
    double eps = 1e-6;
    bool affine = true;

    void describe(OptionVisitor& option) {
      option("threshold", threshold,
             "the activation is max(y, tau) with a learned tau per channel; false: ReLU");
      option("eps", eps, "added to the mean square under the root").above(0);
      option("affine", affine, "whether there are a weight and a bias per channel");
    }
  };

  FilterResponse(const Options& options, const Context& context) : Strategy(context), options_(options) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override {
    const FilterResponseRules rules{.strategy = "filter_response_norm",
                                    .eps = options_.eps,
                                    .affine = options_.affine && site.affine,
                                    .threshold = options_.threshold};
    return std::make_shared<FilterResponseNorm>(
        site, rules, at::TensorOptions().device(context_.device).dtype(statistics_type(context_.dtype)));
  }

  StepWork work(const Step&) const override { return {}; }

 private:
  Options options_;
};

const Registered<Strategy> entry{
    {.name = "filter_response_norm",
     .summary = "each channel of each sample is divided by its root mean square, before a learned threshold",
     .source = "Singh and Krishnan 2020 (FRN with TLU)",
     .formula = "nu2 = mean of x^2 over the positions of one sample and channel\n"
                "y = gamma x / sqrt(nu2 + eps) + beta; z = max(y + residual, tau) where ReLU would follow\n"
                "the same in training and evaluation",
     .exchanges = "none",
     .use = "when samples must not depend on one another, and groups of channels are not to be chosen",
     .limits = "a map of one position says nothing of its scale: it cannot train there"},
    make<Strategy, FilterResponse>};

}  // namespace bnlab::filter_response_norm
