// Help: what every command prints with --help.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "tests/cli/called.hpp"

namespace bnlab {
namespace {

using test::call;
using test::has;

constexpr const char* kColumns = "COLUMNS";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string help_of(const std::string& command, const char* columns = nullptr) {
  if (columns != nullptr) setenv(kColumns, columns, 1);
  const test::Answer answer = call({command, "--help"});
  unsetenv(kColumns);
  EXPECT_EQ(answer.code, 0) << command;
  return answer.out;
}

// The commands by the headings of the program's help, in its order.
std::vector<std::pair<std::string, std::string>> listed_commands() {
  unsetenv(kColumns);
  const std::string help = call({"--help"}).out;
  std::vector<std::pair<std::string, std::string>> all;
  std::string heading;
  for (const std::string& line : lines_of(help.substr(help.find("Start here:")))) {
    if (line.ends_with(':')) heading = line;
    if (line.starts_with("  ") && line[2] != ' ')
      all.emplace_back(line.substr(2, line.find(' ', 2) - 2), heading);
  }
  EXPECT_GT(all.size(), 30u) << help;
  return all;
}

TEST(Help, SaysWhatTheProgramIsThenExamplesThenWhereToStart) {
  const std::string help = call({"--help"}).out;
  EXPECT_EQ(help.rfind("Trains one network", 0), 0u) << help;
  EXPECT_LT(help.find("Examples:\n  bnlab plan quickstart"), help.find("Start here:\n")) << help;
  EXPECT_TRUE(has(help, "130")) << help;
  EXPECT_FALSE(has(help, "Commands:")) << "every command stands below a heading of its own kind";
  std::vector<std::string> first;
  for (const auto& [command, heading] : listed_commands()) {
    EXPECT_NE(command, "rank") << "for the launcher, not for people";
    if (heading == "Start here:") first.push_back(command);
  }
  EXPECT_EQ(first, (std::vector<std::string>{"run", "plan", "report", "explain", "init"}));
}

TEST(Help, OfACommandSaysWhatItDoesAndThenExamples) {
  const std::vector<std::string> no_verbs = {"A",   "An",      "The",   "Its", "What",
                                             "Why", "Whether", "Every", "Two"};
  for (const auto& [command, heading] : listed_commands()) {
    const std::string help = help_of(command);
    EXPECT_EQ(std::ranges::count(no_verbs, help.substr(0, help.find(' '))), 0) << help;
    EXPECT_TRUE(has(help, "\nExamples:\n  ") && has(help, "bnlab " + command)) << help;
    EXPECT_TRUE(has(help, "\nUsage: bnlab " + command + " ")) << help;
  }
}

TEST(Help, FitsTheTerminal) {
  std::vector<std::string> commands = {"help"};  // the program's own
  for (const auto& [command, heading] : listed_commands()) commands.push_back(command);
  for (const auto& [columns, widest] :
       {std::pair<const char*, size_t>{nullptr, 80}, {"80", 80}, {"200", 100}}) {
    for (const std::string& command : commands)
      for (const std::string& line : lines_of(help_of(command, columns)))
        EXPECT_LE(line.size(), widest) << command << ": " << line;
  }
  const std::string narrow = help_of("run", "60");
  for (const std::string& line : lines_of(narrow.substr(narrow.find("Options:"))))
    EXPECT_LE(line.size(), 60u) << line;
}

TEST(Help, NamesValuesAndNotHowTheyAreChecked) {
  EXPECT_TRUE(has(help_of("run"), "\n  --ranks N                 Processes per run")) << help_of("run");
  EXPECT_TRUE(has(help_of("run"), "Folder of the records (default: results)\n")) << help_of("run");
  EXPECT_TRUE(has(help_of("predict"), "(required)")) << help_of("predict");
  for (const auto& [command, heading] : listed_commands()) {
    const std::string help = help_of(command);
    for (const char* check : {" INT ", "INT=", ":INT", "FLOAT", " TEXT", " in [", ":{", "REQUIRED", "Env:"})
      EXPECT_FALSE(has(help, check)) << command << ": " << check << "\n" << help;
  }
}

// The manual has each option as .TP, its name and what it does, a line each.
TEST(Help, OfAnOptionLeansOnNoOther) {
  const std::vector<std::string> lines = lines_of(call({"man"}).out);
  size_t options = 0;
  for (size_t i = 2; i < lines.size(); ++i) {
    if (lines[i - 2] != ".TP" || !lines[i - 1].starts_with("\\fB")) continue;
    ++options;
    EXPECT_TRUE(std::isupper(static_cast<unsigned char>(lines[i][0])) != 0)
        << lines[i - 1] << ": " << lines[i];
    EXPECT_FALSE(lines[i].starts_with("Of ")) << lines[i];
  }
  EXPECT_GT(options, 100u);
}

}  // namespace
}  // namespace bnlab
