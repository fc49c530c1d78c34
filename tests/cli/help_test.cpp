// Help: what every command prints with --help.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "harness/support/mapped.hpp"
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

TEST(Help, SaysWhatTheProgramIsThenExamplesThenWhereToStart) {
  const std::string help = call({"--help"}).out;
  EXPECT_EQ(help.rfind("Trains one network", 0), 0u) << help;
  EXPECT_LT(help.find("Examples:\n  bnlab plan quickstart"), help.find("Start here:\n")) << help;
  EXPECT_TRUE(has(help, "130")) << help;
  EXPECT_FALSE(has(help, "Commands:")) << "every command stands below a heading of its own kind";
  size_t at = help.find("Start here:\n");
  for (const Command& command : listed_commands()) {
    EXPECT_NE(command.name, "rank") << "for the launcher, not for people";
    const size_t next = help.find("\n  " + command.name + " ", at);
    ASSERT_NE(next, std::string::npos)
        << command.name << " is not listed, or not behind " << help.substr(at, 20);
    at = next;
  }
  EXPECT_EQ(listed_commands().front().name, "run");
}

TEST(Help, OfACommandSaysWhatItDoesAndThenExamples) {
  const std::vector<std::string> no_verbs = {"A",   "An",      "The",   "Its", "What",
                                             "Why", "Whether", "Every", "Two"};
  for (const std::string& command : mapped(listed_commands(), &Command::name)) {
    const std::string help = help_of(command);
    EXPECT_EQ(std::ranges::count(no_verbs, help.substr(0, help.find(' '))), 0) << help;
    EXPECT_TRUE(has(help, "\nExamples:\n  ") && has(help, "bnlab " + command)) << help;
    EXPECT_TRUE(has(help, "\nUsage: bnlab " + command + " ")) << help;
  }
}

TEST(Help, FitsTheTerminal) {
  std::vector<std::string> commands = mapped(listed_commands(), &Command::name);
  EXPECT_GT(commands.size(), 30u);
  commands.emplace_back("help");  // the program's own
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
  for (const std::string& command : mapped(listed_commands(), &Command::name)) {
    const std::string help = help_of(command);
    for (const char* check : {" INT ", "INT=", ":INT", "FLOAT", " TEXT", " in [", ":{", "REQUIRED", "Env:"})
      EXPECT_FALSE(has(help, check)) << command << ": " << check << "\n" << help;
  }
}

TEST(Help, OfAnOptionNamesOthersThatAreThere) {
  for (const Command& command : listed_commands()) {
    const std::vector<Argument> all = command.arguments().all();
    const std::vector<std::string> known = mapped(all, &Argument::name);
    for (const Argument& argument : all) {
      std::vector<std::string> others = argument.excludes;
      others.insert(others.end(), argument.beside.begin(), argument.beside.end());
      if (!argument.needs.empty()) others.push_back(argument.needs);
      for (const std::string& other : others)
        EXPECT_EQ(std::ranges::count(known, other), 1)
            << command.name << " " << argument.name << ": " << other;
      EXPECT_EQ(std::ranges::count(known, argument.name), 1) << command.name << " has it twice";
    }
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
