// layer_norm: each sample is normalised by itself, over all channels and positions (Ba et al. 2016). This is
// group_norm with one group.
#include "strategies/engine/sample_norm.hpp"

namespace bnlab::layer_norm {

class LayerNorm : public SampleStrategy {
 public:
  LayerNorm(const Options& options, const Context& context)
      : SampleStrategy("layer_norm", options, context) {}

 protected:
  int64_t groups(const NormSite&) const override { return 1; }
};

const Registered<Strategy> entry{
    {.name = "layer_norm",
     .summary = "each sample is normalised by itself, over all channels and positions",
     .source = "Ba, Kiros and Hinton 2016",
     .formula = "m, v = mean and biased variance of one sample over all channels and positions\n"
                "y = gamma (x - m) / sqrt(v + eps) + beta, gamma and beta per channel\n"
                "the same in training and evaluation",
     .exchanges = "none",
     .use = "as the end of group_norm's range with one group: when not even groups of channels are to be "
            "chosen",
     .limits =
         "all channels share one mean and variance, which suits convolutional networks less than groups do"},
    make<Strategy, LayerNorm>};

}  // namespace bnlab::layer_norm
