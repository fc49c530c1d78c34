// The command line of bnlab forward; a fake answers.
#include <gtest/gtest.h>

#include <fstream>

#include "harness/cli/program.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

class ForwardCommand : public ::testing::Test {
 protected:
  ForwardCommand() {
    std::ofstream(scratch_ / "w") << "weights";
    std::ofstream(scratch_ / "i") << "images";
  }

  // Returns the exit code; what was said is in said_.
  int call(const std::string& model, const std::string& images) {
    const std::string weights = scratch_ / "w", inputs = scratch_ / images, out = scratch_ / "o";
    const char* const words[] = {"bnlab",      "forward", weights.c_str(), "--model",      model.c_str(),
                                 "--strategy", "left",    "--images",      inputs.c_str(), "--out",
                                 out.c_str(),  "--mode",  "train",         "--classes",    "7"};
    testing::internal::CaptureStderr();
    const int code = run_program(static_cast<int>(std::size(words)), words);
    said_ = testing::internal::GetCapturedStderr();
    return code;
  }

  test::Scratch scratch_;
  std::string said_;
};

TEST_F(ForwardCommand, AnswersIntoAFileAndSaysWhatWasUsed) {
  EXPECT_EQ(call("fake", "i"), exit_code::kOk) << said_;
  EXPECT_EQ(said_, "used " + (scratch_ / "w") + "\n");
  std::string asked;
  std::ifstream answer(scratch_ / "o");
  std::getline(answer, asked);
  EXPECT_EQ(asked, R"({"name":"fake"} {"name":"left","weight":1.0} 7 train)");
}

TEST_F(ForwardCommand, TellsWhatIsWrongBeforeItStarts) {
  EXPECT_EQ(call("fakke", "i"), exit_code::kUsage);
  EXPECT_NE(said_.find("did you mean \"fake\"?"), std::string::npos) << said_;
  EXPECT_EQ(call("fake", "none"), exit_code::kUsage);
  EXPECT_EQ(said_, "bnlab: " + (scratch_ / "none") + ": no such file\n");
  std::filesystem::create_directory(scratch_ / "folder");
  EXPECT_EQ(call("fake", "folder"), exit_code::kUsage);
  EXPECT_NE(said_.find("folder: is a folder; expected a safetensors file"), std::string::npos) << said_;
}

}  // namespace
}  // namespace bnlab
