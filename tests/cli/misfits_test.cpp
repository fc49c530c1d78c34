// What a strategy refuses for its towers is a mistake in the spec; what it refuses at a site is told.
#include <gtest/gtest.h>

#include <filesystem>

#include "harness/cli/program.hpp"
#include "harness/counting/single_values.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {

// Stands in for a look at the network: of the strategy "left" with weight 0.
std::string single_value_refusal(const RunSpec& run) {
  return run.strategy.value("weight", 1.0) == 0 ? "too few values; use more" : "";
}

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

TEST(Misfits, RunsThatWillFailAreToldBeforeAnyStarts) {
  const test::Scratch scratch;
  const std::string spec = scratch.write_spec(
      test::behaves("ok"),
      R"(, "matrix": {"seed": [0, 1], "strategy": ["right", {"name": "left", "weight": 0}]})");
  const std::string results = scratch / "results";
  for (const char* command : {"plan", "run"}) {
    const char* const words[] = {"bnlab", command, spec.c_str(), "--results", results.c_str()};
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_program(5, words), exit_code::kOk) << "they may be what is asked about";
    testing::internal::GetCapturedStdout();
    const std::string said = testing::internal::GetCapturedStderr();
    const std::string note = "note: 2 of the runs to start will fail: too few values; use more\n";
    EXPECT_LT(said.find(note), said.find("records: ")) << said;
  }
}

}  // namespace
}  // namespace bnlab
