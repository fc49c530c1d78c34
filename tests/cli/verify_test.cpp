// What `verify` says of strategies, those that end the program included.
#include <signal.h>

#include <array>

#include "harness/json.hpp"
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

}  // namespace
}  // namespace bnlab
