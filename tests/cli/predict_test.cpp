// The command line of bnlab predict; a fake answers.
#include <gtest/gtest.h>

#include "harness/store/run_folder.hpp"
#include "tests/cli/called.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

class PredictCommand : public ::testing::Test {
 protected:
  // The folder of a run of the made-up ranks, with weights.
  std::string run_of(const std::string& strategy, const std::string& behaviour = "ok") {
    const std::string spec =
        scratch_.write_spec(test::behaves(behaviour), R"(, "strategy": ")" + strategy + "\"");
    call({"run", spec, "--device", "cpu", "--ranks", "1", "--results", scratch_ / "results"});
    for (const Record& record : scratch_.records()) {
      if (record.run_id().rfind(strategy, 0) == 0 &&
          !fs::exists(record.file().parent_path() / kWeightsFile)) {
        std::ofstream(record.file().parent_path() / kWeightsFile) << "weights";
        return record.file().parent_path();
      }
    }
    return "";
  }

  int call(const std::vector<std::string>& words) {
    const test::Answer answer = test::call(words);
    said_ = answer.err;
    return answer.code;
  }

  test::Scratch scratch_;
  std::string said_;
};

TEST_F(PredictCommand, WritesPicturesOfAllRunsBesideTheTruth) {
  const std::string left = run_of("left"), right = run_of("right"), out = scratch_ / "out";
  ASSERT_EQ(call({"predict", left, right, "--samples", "3,1", "--out", out}), exit_code::kOk) << said_;
  const Json index = read_json(out + "/predictions.json");
  ASSERT_EQ(index.at("samples").size(), 2u);
  EXPECT_EQ(index.at("samples")[0].at("sample"), 3);
  EXPECT_EQ(read_text(out + "/" + index.at("samples")[0].at("truth").get<std::string>()), "3 255 ");
  ASSERT_EQ(index.at("runs").size(), 2u);
  EXPECT_EQ(index.at("runs")[1].at("strategy"), "right");
  const std::string answer = index.at("runs")[1].at("answers")[1];
  EXPECT_EQ(read_text(out + "/" + answer), "1 1 ");
  const std::string overlay = answer.substr(0, answer.size() - 4) + "-overlay.png";
  EXPECT_EQ(read_text(out + "/" + overlay), "50 50 50 50 50 50 ");
}

TEST_F(PredictCommand, ExportFoldsTheWeightsOfOneRun) {
  const std::string left = run_of("left"), out = scratch_ / "out";
  ASSERT_EQ(call({"export", left, "--folded", "--out", out}), exit_code::kOk) << said_;
  EXPECT_EQ(said_, "folded 3 norms; outputs differ by 2e-07 of the largest. Ask it with: bnlab forward " +
                       out +
                       R"( --model '{"name":"fake"}' --strategy none --classes 7 --images FILE --out FILE)"
                       "\n");
  EXPECT_EQ(read_text(out), left + "/weights.safetensors");
  for (const char* option : {"--spec", "--data"}) {
    EXPECT_EQ(call({"export", left, option, "x", "--out", out}), exit_code::kUsage);
    const std::string cure = " requires --folded; give both or neither\n";
    EXPECT_NE(said_.find(option + cure), std::string::npos) << said_;
  }
}

TEST_F(PredictCommand, TakesSixSamplesIfNoneIsNamed) {
  const std::string left = run_of("left"), out = scratch_ / "out";
  ASSERT_EQ(call({"predict", left + "/weights.safetensors", "--out", out}), exit_code::kOk) << said_;
  EXPECT_EQ(read_json(out + "/predictions.json").at("samples").size(), 6u);
}

TEST_F(PredictCommand, RefusesWhatCannotStandOnOneSheet) {
  const std::string left = run_of("left"), out = scratch_ / "out";
  EXPECT_EQ(call({"predict", left, left, "--out", out}), exit_code::kUsage);
  EXPECT_NE(said_.find("is asked for twice"), std::string::npos) << said_;
  EXPECT_EQ(call({"predict", left, "--out", out, "--population", "tower:2"}), exit_code::kUsage);
  EXPECT_EQ(call({"predict", scratch_ / "nowhere", "--out", out}), exit_code::kUsage);
  const std::string spec = scratch_.write_spec(test::behaves("ok"), R"(, "strategy": "right", "seed": 1)");
  call({"run", spec, "--device", "cpu", "--ranks", "1", "--results", scratch_ / "results"});
  const std::string other = scratch_.records().back().file().parent_path();
  std::ofstream(other + "/weights.safetensors") << "weights";
  EXPECT_EQ(call({"predict", left, other, "--out", out}), exit_code::kUsage);
  EXPECT_NE(said_.find("ask for runs of one seed"), std::string::npos) << said_;
  EXPECT_FALSE(fs::exists(out));
}

}  // namespace
}  // namespace bnlab
