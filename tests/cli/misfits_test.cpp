// What a strategy refuses for its towers is a mistake in the spec.
#include <gtest/gtest.h>

#include <filesystem>

#include "harness/cli/program.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

TEST(Misfits, AreToldOfAllRunsBeforeAnyStarts) {
  const test::Scratch scratch;
  const std::string spec = scratch.write_spec(
      test::behaves("ok"),
      R"(, "matrix": {"strategy": ["right", {"name": "left", "weight": 3}, {"name": "left", "weight": 4}]})");
  const std::string results = scratch / "results";
  for (const char* command : {"plan", "run"}) {
    const char* const words[] = {"bnlab", command, spec.c_str(), "--results", results.c_str()};
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_program(5, words), exit_code::kUsage);
    const std::string said = testing::internal::GetCapturedStderr();
    for (const char* key : {"matrix.strategy[1].weight", "matrix.strategy[2].weight"}) {
      EXPECT_NE(said.find(std::string(key) + ": is more than there are towers, 2"), std::string::npos)
          << said;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(results));
}

}  // namespace
}  // namespace bnlab
