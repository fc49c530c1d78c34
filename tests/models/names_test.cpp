// What the table of other names answers exists, with the options that it names.
#include <gtest/gtest.h>

#include <algorithm>

#include "harness/components/other_names.hpp"
#include "harness/components/registry.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/support/json.hpp"

namespace bnlab {
namespace {

TEST(OtherNames, EveryAnswerWorksWhenItIsTyped) {
  for (const char* family : {"model", "backbone", "optimizer", "loss", "task"}) {
    for (const OtherName& each : other_names(family)) {
      if (each.ours.starts_with("{")) {
        Problems problems;
        resolve({component_key(family)}, {{family, Json::parse(each.ours)}}, "", problems);
        EXPECT_TRUE(problems.empty()) << each.ours;
      } else if (!each.ours.empty()) {
        EXPECT_NE(find_registered(family, each.ours), nullptr) << each.ours;
      }
    }
  }
}

TEST(OtherNames, NoNameOfOursHasAnotherAnswer) {
  for (const char* family : {"model", "backbone", "optimizer", "loss", "task"})
    for (const std::string& name : registered_names(family))
      EXPECT_EQ(answer_from_table(family, name), "") << family;
}

TEST(OtherNames, EveryKeyOfTheAnswersExists) {
  for (const OtherName& each : other_names(kKeys)) {
    const bool of_the_file = std::ranges::count(spec_parameters(), each.ours, &Parameter::name) > 0;
    EXPECT_TRUE(of_the_file || !declarations(each.ours).empty()) << each.ours;
    EXPECT_TRUE(declarations(each.theirs).empty()) << each.theirs << " is a key of ours";
  }
}

}  // namespace
}  // namespace bnlab
