// What the program says reaches the user, and does nothing to a terminal.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "harness/cli/program.hpp"
#include "harness/launch/process.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

// The exit code of the program, whose output goes into a file.
int code_of(const std::vector<std::string>& words, const std::string& output) {
  ChildCommand command;
  command.argv = {std::filesystem::read_symlink("/proc/self/exe").string()};
  command.argv.insert(command.argv.end(), words.begin(), words.end());
  command.log_file = output;
  return Process(command).wait().code;
}

std::string text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(Output, MessagesDoNothingToATerminal) {
  const test::Scratch scratch;
  EXPECT_EQ(code_of({"run", "\033[2Jno.json"}, scratch / "out"), exit_code::kUsage);
  const std::string said = text_of(scratch / "out");
  EXPECT_EQ(said.find('\033'), std::string::npos) << said;
  EXPECT_NE(said.find("\\u001b[2Jno.json"), std::string::npos) << said;
}

TEST(Output, AFileNameThatNoSystemTakesIsExitCodeTwo) {
  const test::Scratch scratch;
  EXPECT_EQ(code_of({"plan", std::string(5000, 'x')}, scratch / "out"), exit_code::kUsage);
  const std::string said = text_of(scratch / "out");
  EXPECT_EQ(said.find("unexpected"), std::string::npos) << said;
  EXPECT_LT(said.size(), 500U);
}

TEST(Output, LostOutputIsNoSuccess) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"list", "strategies"}, {"--help"}, {"list", "--help"}}) {
    EXPECT_EQ(code_of(words, "/dev/full"), exit_code::kEnvironment) << words.front();
  }
}

}  // namespace
}  // namespace bnlab
