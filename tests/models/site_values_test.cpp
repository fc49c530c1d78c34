// How many values of a channel an image has at each norm site.
#include "harness/models/site_values.hpp"

#include <gtest/gtest.h>

#include "harness/experiment/spec.hpp"

namespace bnlab {
namespace {

TEST(SiteValuesOf, AnImageFallWithEachLevelOfTheNetwork) {
  const Json model = resolved_component("model", {{"name", "unet"}, {"base", 4}, {"levels", 2}});
  const std::vector<SiteValues> sites = site_values(model, {16, 24});
  std::vector<int64_t> values;
  for (const SiteValues& site : sites) values.push_back(site.values);
  EXPECT_EQ(values, (std::vector<int64_t>{384, 384, 96, 96, 384, 384}));
  ASSERT_NE(poorest_of(sites), nullptr);
  EXPECT_EQ(poorest_of(sites)->name, sites[2].name);
  EXPECT_EQ(poorest_of({}), nullptr);
}

}  // namespace
}  // namespace bnlab
