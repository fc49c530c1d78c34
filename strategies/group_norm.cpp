// group_norm: each sample is normalised by itself, over groups of channels and all positions (Wu and He
// 2018). It depends neither on the batch nor on towers, and keeps no running statistics.
#include "harness/support/error.hpp"
#include "strategies/engine/sample_norm.hpp"

namespace bnlab::group_norm {

class GroupNorm : public SampleStrategy {
 public:
  struct Options : SampleOptions {
    int64_t groups = 8;
    std::optional<int64_t> channels_per_group;

    void describe(OptionVisitor& option) {
      option("groups", groups, "groups of channels; must divide the channels").at_least(1);
      option("channels_per_group", channels_per_group, "instead of groups: channels in each").at_least(1);
      SampleOptions::describe(option);
    }

    void check(const RunOutline& run, Problems& problems) const {
      if (channels_per_group && groups != Options().groups)
        problems.add("groups", "has no effect beside channels_per_group; leave one of them out");
      for (const int64_t channels : run.norm_channels) {
        if (channels % channels_per_group.value_or(groups) != 0) {
          problems.add(channels_per_group ? "channels_per_group" : "groups",
                       "expected a divisor of the " + std::to_string(channels) +
                           " channels of a norm site, got " +
                           std::to_string(channels_per_group.value_or(groups)));
          return;
        }
      }
    }
  };

  GroupNorm(const Options& options, const Context& context)
      : SampleStrategy("group_norm", options, context), options_(options) {}

 protected:
  int64_t groups(const NormSite& site) const override {
    if (!options_.channels_per_group) return options_.groups;
    const int64_t each = *options_.channels_per_group;
    if (site.channels % each != 0) {
      throw Error(Error::Kind::refused, "group_norm: " + std::to_string(each) +
                                            " channels per group do not divide the " +
                                            std::to_string(site.channels) + " channels of site " + site.name);
    }
    return site.channels / each;
  }

 private:
  Options options_;
};

const Registered<Strategy> entry{
    {.name = "group_norm",
     .summary = "each sample is normalised by itself, over groups of channels",
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

}  // namespace bnlab::group_norm
