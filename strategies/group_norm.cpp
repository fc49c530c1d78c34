// group_norm: each sample is normalised by itself, over groups of channels and all positions (Wu and He
// 2018). Does not depend on the batch or on towers; keeps no running statistics.
#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "strategies/engine/sample_norm.hpp"

namespace bnlab {
namespace {

class GroupNorm : public SampleStrategy {
 public:
  using SampleStrategy::SampleStrategy;

 protected:
  int64_t groups(const NormSite& site) const override {
    if (options_.at("channels_per_group").is_null()) {
      return options_.at("groups").get<int64_t>();
    }
    const auto each = options_.at("channels_per_group").get<int64_t>();
    if (site.channels % each != 0) {
      throw Error(Error::Kind::refused, "group_norm: " + std::to_string(each) +
                                            " channels per group do not divide the " +
                                            std::to_string(site.channels) + " channels of site " + site.name);
    }
    return site.channels / each;
  }
};

const Registered<Strategy> entry{
    {.name = "group_norm",
     .summary = "each sample is normalised by itself, over groups of channels",
     .parameters = sample_norm_parameters(
         {Parameter::integer("groups", 8, "groups of channels; must divide the channels").at_least(1),
          Parameter::integer("channels_per_group", nullptr, "instead of groups: channels in each")
              .at_least(1)
              .or_null()}),
     .source = "Wu and He 2018",
     .formula = "m, v = mean and biased variance of one sample over one group's channels and positions\n"
                "y = gamma (x - m) / sqrt(v + eps) + beta, gamma and beta per channel\n"
                "the same in training and evaluation",
     .exchanges = "none",
     .use = "when a tower holds so few samples that batch statistics are poor, and no exchange is wanted",
     .limits =
         "the groups must divide the channels of every site, and it costs a pass over the activations in "
         "evaluation too"},
    make<Strategy, GroupNorm>};

}  // namespace
}  // namespace bnlab
