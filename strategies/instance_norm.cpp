// instance_norm: each channel of each sample is normalised by itself, over its positions (Ulyanov et al.
// 2016). This is group_norm with one channel per group.
#include "strategies/engine/sample_norm.hpp"

namespace bnlab::instance_norm {

class InstanceNorm : public SampleStrategy {
 public:
  InstanceNorm(const Options& options, const Context& context)
      : SampleStrategy("instance_norm", options, context) {}

 protected:
  int64_t groups(const NormSite& site) const override { return site.channels; }
};

const Registered<Strategy> entry{
    {.name = "instance_norm",
     .summary = "each channel of each sample is normalised by itself, over its positions",
     .source = "Ulyanov, Vedaldi and Lempitsky 2016",
     .formula = "m, v = mean and biased variance of one channel of one sample over its positions\n"
                "y = gamma (x - m) / sqrt(v + eps) + beta, gamma and beta per channel\n"
                "the same in training and evaluation",
     .exchanges = "none",
     .use = "when the contrast of an image should not matter, as in style transfer",
     .limits =
         "it forgets how strong a channel is in a sample, and cannot train on one position per channel"},
    make<Strategy, InstanceNorm>};

}  // namespace bnlab::instance_norm
