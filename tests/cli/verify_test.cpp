// What `verify` says of strategies, those that end the program included.
#include <signal.h>

#include <array>

#include "harness/support/json.hpp"
#include "tests/cli/called.hpp"

namespace bnlab {
namespace {

using test::Answer;
using test::call;
using test::has;

TEST(VerifyCommand, FailsIfAVariantFails) {
  EXPECT_EQ(call({"verify", "--strategy", "left"}).code, exit_code::kOk);
  const Answer answer = call({"verify", "--strategy", "left,wrong"});
  EXPECT_EQ(answer.code, exit_code::kFailed);
  EXPECT_TRUE(has(answer.out, "wrong\n    its output\n1 of 2 variants of strategies FAILED.\n"))
      << answer.out;
  EXPECT_EQ(Json::parse(call({"verify", "--strategy", "wrong", "--json"}).out).at("passed"), false);
}

TEST(VerifyCommand, TakesNamesAsExplainDoes) {
  EXPECT_EQ(call({"verify", "left"}).code, exit_code::kOk);
  EXPECT_TRUE(has(call({"verify", "left,wrong"}).out, "1 of 2 variants of strategies FAILED."));
}

TEST(VerifyCommand, NamesTheStrategyThatEndsTheProgram) {
  const std::array<const char*, 4> words = {"bnlab", "verify", "--strategy", "left,fatal"};
  EXPECT_EXIT(
      run_program(words.size(), words.data()), testing::KilledBySignal(SIGFPE),
      "the strategy fatal ended the program by SIGFPE; gdb --args bnlab verify --strategy fatal shows");
}

TEST(VectorsCommand, SaysWhatItWroteAndNeedsAFolder) {
  const Answer answer = call({"vectors", "--out", "here"});
  EXPECT_EQ(answer.code, exit_code::kOk);
  EXPECT_EQ(answer.out, "2 cases in here/vectors.json and here/vectors.safetensors, 4 bytes\n");
  EXPECT_EQ(call({"vectors"}).code, exit_code::kUsage);
}

}  // namespace
}  // namespace bnlab
