// What `cost` answers and refuses.
#include "harness/cli/program.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/cli/on_results.hpp"

namespace bnlab {
namespace {

using test::Answer;
using test::call;
using test::has;

TEST(CostCommand, PublishedClustersSayNothingOfOtherExchanges) {
  const test::Scratch scratch;
  const std::string spec = scratch.write_spec(test::behaves("ok"));
  for (const char* exchange : {"sockets", "shared_memory"}) {
    for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--cluster", "h100-2x8"}}) {
      std::vector<std::string> words = {"cost", spec, "--step-ms", "10", "--exchange", exchange};
      words.insert(words.end(), more.begin(), more.end());
      const Answer answer = call(words);
      EXPECT_EQ(answer.code, exit_code::kUsage) << answer.out;
      EXPECT_TRUE(has(answer.err, "and give --probe probe.json")) << answer.err;
    }
  }
}

TEST(TraceCommand, SaysWhatAGpuSpendsAStepOn) {
  const test::Scratch scratch;
  const Answer answer = call({"trace", scratch.write_spec(test::behaves("ok")), "--device", "cpu"});
  EXPECT_EQ(answer.code, exit_code::kOk) << answer.err;
  for (const char* words : {"10 ms a step under the profiler, 62.5 operators, nothing runs in 20.0 %; ",
                            "NCCL 4.000 ms, next to others 75 % of that, alone 10.0 % of the step\n",
                            "70.0 %     7.0000    60.5  rows<float>(int)\n"})
    EXPECT_TRUE(has(answer.out, words)) << words << answer.out;
}

TEST(CostCommand, AnswersInASentence) {
  const test::Scratch scratch;
  const std::string file =
      scratch.write_spec(test::behaves("ok"), R"(, "matrix": {"strategy": ["left", "right"]})");
  const Answer given = call({"cost", file, "--ranks", "8,64", "--step-ms", "10"});
  EXPECT_EQ(given.code, exit_code::kOk) << given.err;
  EXPECT_TRUE(given.out.starts_with("right keeps ")) << given.out;
  EXPECT_TRUE(has(given.out, " of the images/s of left on 8 GPUs, ")) << given.out;
  EXPECT_TRUE(has(given.out, "baseline: the first strategy")) << given.out;
}

TEST(CostCommand, MeasuresAStepWhereThatIsAskedForAlone) {
  const test::Scratch scratch;
  const std::string file =
      scratch.write_spec(test::behaves("ok"), R"(, "matrix": {"strategy": ["left", "right"]})");
  const Answer counted = call({"cost", file, "--ranks", "8"});
  EXPECT_EQ(counted.code, exit_code::kOk) << counted.err;
  EXPECT_TRUE(counted.out.starts_with("right takes longer than left: ")) << counted.out;
  for (const char* words : {") a step on 8 GPUs", "--step-ms", "--peak-tflops", "--seconds", "30 ms"})
    EXPECT_TRUE(has(counted.out, words)) << words << counted.out;
  EXPECT_FALSE(has(counted.out, "images/s  ")) << counted.out;
  EXPECT_EQ(counted.err, "");
  const Answer measured = call({"cost", file, "--ranks", "8", "--seconds", "8"});
  EXPECT_TRUE(has(measured.err, "measuring a step of right as one of 8 ranks, for about 2 s"))
      << measured.err;
  EXPECT_TRUE(has(measured.out, "was measured here, on the CPU")) << measured.out;
}

TEST(CostCommand, OptionsWithoutEffectAreRefused) {
  const test::Scratch scratch;
  const std::string spec = scratch.write_spec(test::behaves("ok"));
  const Answer listed = call({"cost", "--clusters", spec});
  EXPECT_EQ(listed.code, exit_code::kUsage);
  EXPECT_TRUE(has(listed.err, "--clusters excludes SPEC")) << listed.err;
  EXPECT_EQ(call({"cost", "--clusters", "--json"}).code, exit_code::kOk);
  EXPECT_EQ(call({"cost", "--clusters", "--ranks", "2"}).code, exit_code::kUsage);
  for (const auto& [option, value] :
       {std::pair("--algorithm", "ring"), {"--link", "pcie"}, {"--per-node", "4"}}) {
    const Answer answer = call({"cost", spec, "--cluster", "h100-2x8", option, value});
    EXPECT_EQ(answer.code, exit_code::kUsage) << answer.out;
    EXPECT_TRUE(has(answer.err, "excludes")) << answer.err;
  }
}

TEST(CostCommand, AFileThatIsNoProbeIsNamed) {
  const test::Scratch scratch;
  const std::string spec = scratch.write_spec(test::behaves("ok")), probe = scratch / "probe.json";
  for (const char* text :
       {R"({"a": 1})", "[]", R"({"schema": "bnlab probe 1"})", "{",
        R"({"schema": "bnlab probe 1", "fabric": {"ranks": 2, "nodes": 0}, "collectives": []})",
        R"({"schema": "bnlab probe 1", "fabric": {"ranks": 2, "nodes": -1e-308}})"}) {
    std::ofstream(probe) << text;
    for (const std::vector<std::string>& words : {std::vector<std::string>{"cost", spec, "--probe", probe},
                                                  {"cost", "--validate", probe},
                                                  {"report", spec, "--probe", probe}}) {
      const Answer answer = call(words);
      EXPECT_EQ(answer.code, exit_code::kUsage) << answer.err;
      EXPECT_TRUE(has(answer.err, "probe.json")) << answer.err;
      EXPECT_FALSE(has(answer.err, "json.exception")) << answer.err;
    }
  }
}

}  // namespace
}  // namespace bnlab
