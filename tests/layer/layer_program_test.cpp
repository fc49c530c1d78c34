#include "harness/layer/layer_program.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/layer/example.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

class LayerProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("bnlab_layer_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  bool answer(const std::vector<std::string>& files, int ranks = 1) {
    std::ostringstream out, err;
    const bool all_done = answer_layer_cases({files, ranks, "cpu"}, out, err);
    out_ = out.str();
    err_ = err.str();
    return all_done;
  }

  fs::path folder_;
  std::string out_, err_;
};

TEST_F(LayerProgram, AnswersTheWorkedExample) {
  const std::string example = file("example.json", example_document("sync").dump());
  EXPECT_TRUE(answer({example}, 2));
  EXPECT_EQ(err_, "");
  EXPECT_EQ(std::count(out_.begin(), out_.end(), '\n'), 1);
  const Json step = Json::parse(out_).at("steps").at(0);
  EXPECT_NEAR(step.at("towers")[0].at("output").at("data")[0].get<double>(), -3.504189, 6e-7);
  EXPECT_NEAR(step.at("towers")[1].at("grad_input").at("data")[2].get<double>(), -.318933, 6e-7);
  EXPECT_NEAR(step.at("grad_weight")[0].get<double>(), -3.44326, 6e-7);
  EXPECT_NEAR(step.at("grad_bias")[0].get<double>(), 1.75, 1e-12);
  EXPECT_NEAR(step.at("running_var")[0].get<double>(), 2.45, 1e-12);
  EXPECT_EQ(step.at("collectives")[0],
            (Json{{"op", "all_gather"}, {"elements", 3}, {"purpose", "statistics"}}));
  EXPECT_FALSE(step.contains("permutation"));
}

TEST_F(LayerProgram, LeavesOutWhatAStrategyDoesNotHave) {
  Json document = example_document("none");
  document.erase("weight");
  document.erase("bias");
  for (Json& tower : document["steps"][0]["towers"]) tower.erase("grad_output");
  EXPECT_TRUE(answer({file("none.json", document.dump())}));
  const Json step = Json::parse(out_).at("steps").at(0);
  EXPECT_EQ(step.size(), 2u) << step;
  EXPECT_EQ(step.at("towers")[0], (Json{{"output", {{"shape", {3, 1}}, {"data", {1.0, 3.0, 8.0}}}}}));
  EXPECT_EQ(step.at("collectives"), Json::array());
}

TEST_F(LayerProgram, WhatCannotBeDoneIsOneLineEachAndTheOthersRun) {
  Json wrong = example_document("sync");
  wrong["wieght"] = 1;
  Json one_value = example_document("per_tower");
  one_value["steps"][0]["towers"][1] = {{"input", {{"shape", {1, 1}}, {"data", {2}}}}};
  const std::string good = file("good.json", example_document("sync").dump());
  const std::string other = file("other.json", example_document("per_tower").dump());
  const std::vector<std::string> bad{
      file("wrong.json", wrong.dump()),
      file("one.json", one_value.dump()),
      file("syntax.json", "{\n\"a\" 1}"),
      file("twice.json", R"({"seed": 1, "seed": 2, "dtype": "x", "dtype": "y"})"),
      file("huge.json", R"({"seed": 1e999})"),
      (folder_ / "missing.json").string(),
      folder_.string()};
  EXPECT_FALSE(answer({bad[0], good, bad[1], bad[2], bad[3], bad[4], bad[5], bad[6], other}));
  std::istringstream lines(err_);
  const std::vector<std::string> expected{"wieght: unknown key; did you mean \"weight\"?",
                                          "steps[0].towers: more than 1 value per channel is needed",
                                          "line 2, column 5: ",
                                          "seed: duplicate key (line 1)",
                                          "line 1, column 14: expected finite numbers",
                                          "cannot be read: No such file",
                                          "cannot be read: Is a directory"};
  std::string line;
  for (size_t i = 0; i < expected.size(); ++i) {
    do {
      ASSERT_TRUE(std::getline(lines, line)) << err_;
    } while (line.starts_with("  "));  // what stands at the mistake, and a caret
    EXPECT_EQ(line.rfind(bad[i] + ": " + expected[i], 0), 0u) << line;
  }
  EXPECT_FALSE(std::getline(lines, line)) << line;
  std::istringstream answers(out_);
  std::getline(answers, line);
  EXPECT_EQ(Json::parse(line)["steps"][0]["running_mean"][0], 0.55) << "the first that could be done";
  std::getline(answers, line);
  EXPECT_EQ(Json::parse(line)["steps"][0]["running_mean"][0], 0.4);
  EXPECT_FALSE(std::getline(answers, line));
}

TEST_F(LayerProgram, AnEndlessFileIsRefused) {
  EXPECT_FALSE(answer({"/dev/zero"}));
  EXPECT_EQ(err_ + out_, "/dev/zero: expected JSON of at most 1 GiB, got a NUL byte\n");
}

TEST_F(LayerProgram, RanksThatDoNotDivideTheTowersAreRefused) {
  EXPECT_FALSE(answer({file("example.json", example_document("sync").dump())}, 3));
  EXPECT_NE(err_.find("steps[0].towers: expected a number of towers that 3 ranks divide, got 2"),
            std::string::npos)
      << err_;
}

}  // namespace
}  // namespace bnlab
