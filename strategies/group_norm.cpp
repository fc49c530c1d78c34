// group_norm: each sample is normalised by itself, over groups of channels and all positions. Does not
// depend on the batch or on towers; keeps no running statistics.
#include "harness/error.hpp"
#include "harness/registry.hpp"
#include "strategies/normalisation.hpp"
#include "strategies/sample_norm.hpp"

namespace bnlab {
namespace {

class GroupNorm : public Strategy {
 public:
  GroupNorm(const Json& options, const Context& context) : Strategy(context), options_(options) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override {
    SampleNormRules rules{"group_norm", options_.at("groups").get<int64_t>(),
                          options_.at("eps").get<double>(), options_.at("affine").get<bool>()};
    if (!options_.at("channels_per_group").is_null()) {
      const auto each = options_.at("channels_per_group").get<int64_t>();
      if (site.channels % each != 0) {
        throw Error(Error::Kind::refused,
                    "group_norm: " + std::to_string(each) + " channels per group do not divide the " +
                        std::to_string(site.channels) + " channels of site " + site.name);
      }
      rules.groups = site.channels / each;
    }
    return std::make_shared<SampleNorm>(
        site, rules, at::TensorOptions().device(context_.device).dtype(statistics_type(context_.dtype)));
  }

 private:
  Json options_;
};

const Registered<Strategy> entry{
    {"group_norm", "each sample is normalised by itself, over groups of channels",
     sample_norm_parameters(
         {Parameter::integer("groups", 8, "groups of channels; must divide the channels").at_least(1),
          Parameter::integer("channels_per_group", nullptr, "instead of groups: channels in each")
              .at_least(1)
              .or_null()}),
     "Wu and He 2018"},
    make<Strategy, GroupNorm>};

}  // namespace
}  // namespace bnlab
