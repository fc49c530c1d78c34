// The catalogue as users read it: every strategy says what it is, and strategies/README.md says the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "harness/cli/about.hpp"
#include "harness/cli/program.hpp"
#include "harness/components/registry.hpp"
#include "harness/report/report.hpp"
#include "harness/strategy_facts.hpp"

namespace bnlab {
namespace {

constexpr const char* kCommand = "bnlab list strategies --format markdown --into strategies/README.md";

TEST(Catalogue, TheReadmeIsWhatTheRegistrationsSay) {
  const std::string readme = read_text("strategies/README.md");
  const auto copy =
      std::filesystem::temp_directory_path() / ("bnlab_catalogue_" + std::to_string(getpid()) + ".md");
  write_atomically(copy, readme);
  replace_between_markers(copy, "strategies", entries_markdown(registered("strategy")));
  const std::string written = read_text(copy);
  std::filesystem::remove(copy);
  EXPECT_TRUE(readme == written)
      << "strategies/README.md differs from the registrations; write it again with\n  " << kCommand;
}

class CatalogueEntry : public ::testing::TestWithParam<std::string> {};

TEST_P(CatalogueEntry, SaysWhatItIs) {
  const About& about = *find_registered("strategy", GetParam());
  const auto& facts = facts_of<StrategyFacts>({{"name", GetParam()}});
  const auto lines = 1 + std::count(facts.formula.begin(), facts.formula.end(), '\n');
  EXPECT_FALSE(about.summary.empty());
  EXPECT_FALSE(facts.formula.empty());
  EXPECT_LE(lines, 8);
  EXPECT_FALSE(facts.exchanges.empty());
  EXPECT_FALSE(facts.use.empty());
  EXPECT_FALSE(facts.limits.empty());
  EXPECT_FALSE(about.source.empty());
  for (const Parameter& parameter : about.parameters())
    EXPECT_FALSE(parameter.help.empty()) << parameter.name;
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, CatalogueEntry, ::testing::ValuesIn(registered_names("strategy")),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace bnlab
