// Command lines as people type them who know other programs.
#include "harness/cli/program.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/cli/on_results.hpp"

namespace bnlab {
namespace {

using test::Answer;
using test::call;
using test::has;

// What the message says to type behind "; type: ".
std::string meant(const std::vector<std::string>& words) {
  const Answer answer = call(words);
  EXPECT_EQ(answer.code, exit_code::kUsage) << answer.err;
  const std::string before = "; type: ";
  const size_t at = answer.err.find(before);
  if (at == std::string::npos) return answer.err;
  const size_t begin = at + before.size();
  return answer.err.substr(begin, answer.err.find('\n', begin) - begin);
}

TEST(OtherWords, WhatOtherProgramsCallACommandOrAnOptionIsAnsweredWithTheLineToType) {
  EXPECT_EQ(meant({"train", "x.json"}), "bnlab run x.json");
  EXPECT_EQ(meant({"plot", "results/x"}), "scripts/plot.sh results/x");
  EXPECT_EQ(meant({"tensorboard", "results/x"}), "bnlab export --out curves results/x");
  EXPECT_EQ(meant({"eval", "a b"}), "bnlab evaluate 'a b'");
  EXPECT_EQ(meant({"run", "x.json", "--gpus", "2"}), "bnlab run x.json --ranks 2");
  EXPECT_EQ(meant({"run", "x.json", "--nproc_per_node=2"}), "bnlab run x.json --ranks 2");
  EXPECT_EQ(meant({"run", "x.json", "--lr=0.1"}), "bnlab run x.json optimizer.lr=0.1");
  EXPECT_EQ(meant({"run", "x.json", "--lr", "0.1", "--ranks", "2"}),
            "bnlab run x.json optimizer.lr=0.1 --ranks 2");
  EXPECT_EQ(meant({"plan", "x.json", "--batch-size", "4"}), "bnlab plan x.json batch_per_tower=4");
  EXPECT_EQ(meant({"run", "x.json", "--epochs=3"}), "bnlab run x.json epochs=3");
  EXPECT_EQ(meant({"predict", "x", "--output", "y"}), "bnlab predict x --out y");
}

TEST(OtherWords, WhatACommandLacksIsShownByAnExample) {
  const Answer compare = call({"compare", "one"});
  EXPECT_TRUE(has(compare.err, " is required, such as: bnlab compare ")) << compare.err;
}

TEST(OtherWords, ThreadsThatAreNoNumberAreRefused) {
  for (const char* odd : {"abc", "0", "2x", "-1"}) {
    ::setenv("OMP_NUM_THREADS", odd, 1);
    const Answer answer = call({"list", "strategies"});
    EXPECT_EQ(answer.code, exit_code::kEnvironment) << odd;
    EXPECT_TRUE(has(answer.err, std::string("OMP_NUM_THREADS: expected a number of threads, got '") + odd))
        << answer.err;
  }
  ::setenv("OMP_NUM_THREADS", "2,1", 1);
  EXPECT_EQ(call({"list", "strategies"}).code, exit_code::kOk);
  ::unsetenv("OMP_NUM_THREADS");
}

TEST(OtherWords, SeveralValuesOfAKeyAreAnsweredWithTheAxis) {
  const test::Scratch scratch;
  const std::string spec = scratch.write_spec(test::behaves("ok"));
  for (const char* typed : {"seed=0,1", "steps=10,20", "strategy=left,right"}) {
    const Answer answer = call({"plan", spec, typed});
    EXPECT_EQ(answer.code, exit_code::kUsage) << answer.out;
    const std::string before = "; several values are an axis: '";
    const size_t at = answer.err.find(before);
    ASSERT_NE(at, std::string::npos) << typed << answer.err;
    const std::string axis =
        answer.err.substr(at + before.size(), answer.err.find("'\n", at) - at - before.size());
    const Answer again = call({"plan", spec, axis});
    EXPECT_EQ(again.code, exit_code::kOk) << axis << again.err;
    EXPECT_TRUE(has(again.out, "2 of 2 runs to start")) << again.out;
  }
}

}  // namespace
}  // namespace bnlab
