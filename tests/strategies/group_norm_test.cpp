// Options of group_norm that exclude each other.
#include <gtest/gtest.h>

#include "harness/components/registry.hpp"

namespace bnlab::group_norm_test {
namespace {

std::vector<std::pair<std::string, std::string>> mistakes(const Json& options) {
  Json strategy = {{"name", "group_norm"}};
  strategy.update(options);
  Problems problems;
  const Json all = resolve({component_key("strategy")}, {{"strategy", strategy}}, "", problems);
  check_component("strategy", all.at("strategy"), "strategy", RunOutline(), problems);
  return problems.found();
}

TEST(GroupNorm, TakesGroupsOrTheChannelsOfEach) {
  EXPECT_TRUE(mistakes({{"groups", 4}}).empty());
  EXPECT_TRUE(mistakes({{"channels_per_group", 2}}).empty());
  const auto both = mistakes({{"groups", 4}, {"channels_per_group", 2}});
  ASSERT_EQ(both.size(), 1u);
  EXPECT_EQ(both[0].first, "strategy.groups");
  EXPECT_EQ(both[0].second, "has no effect beside channels_per_group; leave one of them out");
}

}  // namespace
}  // namespace bnlab::group_norm_test
