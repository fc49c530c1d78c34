// What a request declares, and what becomes of words that are given to it.
#include "harness/cli/arguments.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/support/error.hpp"

namespace bnlab {
namespace {

BNLAB_CHOICE(Colour, red, green)

struct Request {
  std::string place;
  Words more, only;
  std::vector<int> sizes{2, 8};
  std::optional<Colour> colour;
  double share = 0.5;
  int count = 0;
  std::string file, folder;
  bool brief = false, all = false;
  int calls = 0;

  void describe(Arguments& option) {
    option("PLACE", place, "Where");
    option("[MORE]", more, "What else");
    option("--only WHAT", only, "These alone");
    option("--sizes N,...", sizes, "How large").from(1, 64).by_commas().greedy();
    option("--colour NAME", colour, "Which");
    option("--share S", share, "How much").from(0, 1);
    option("--count N", count, "How many").from(0).only_with("--brief");
    option("--file,--out FILE", file, "Where to").not_with({"--brief"});
    option("--folder DIR", folder, "From where").or_variable("BNLAB_TEST_FOLDER");
    option("--brief", brief, "In short");
    option("--all", all, "All of it").only_beside({"PLACE"});
    const auto take = [this](const std::string& text) { return ++calls > 0 && text == "yes"; };
    option("--sure ANSWER", take, "Whether").expects("yes");
  }
};

// The request that the words fill in; what is wrong with them goes to `wrong`.
Request asked(const Words& words, std::string* wrong = nullptr) {
  Request request;
  Arguments arguments(words);
  request.describe(arguments);
  try {
    for (const std::string& unknown : arguments.deal(words)) ADD_FAILURE() << unknown;
    arguments.read_values("bnlab try here");
  } catch (const Error& error) {
    if (wrong == nullptr) ADD_FAILURE() << error.what();
    if (wrong != nullptr) *wrong = error.what();
  }
  return request;
}

std::string wrong_with(const Words& words) {
  std::string wrong = "nothing";
  asked(words, &wrong);
  return wrong;
}

TEST(Arguments, WordsFillInTheMembersThatAreDeclared) {
  const Request request =
      asked({"here", "--only", "a,b", "--share=.25", "and", "--only=c", "--sizes", "4,16", "32", "--colour",
             "green", "--brief", "--sure", "yes", "--count", "3", "--", "--there"});
  EXPECT_EQ(request.place, "here");
  EXPECT_EQ(request.more, (Words{"and", "--there"}));
  EXPECT_EQ(request.only, (Words{"a,b", "c"}));
  EXPECT_EQ(request.sizes, (std::vector<int>{4, 16, 32}));
  EXPECT_EQ(request.colour, Colour::green);
  EXPECT_EQ(request.share, 0.25);
  EXPECT_TRUE(request.brief && !request.all);
  EXPECT_EQ(request.count, 3);
  EXPECT_EQ(request.calls, 1);
  EXPECT_EQ(asked({"here", "--out", "-"}).file, "-");
  EXPECT_EQ(asked({"here", "-1"}).more, Words{"-1"});
  EXPECT_EQ(asked({"here"}).sizes, (std::vector<int>{2, 8}));
}

TEST(Arguments, TheEnvironmentIsAskedLast) {
  ::setenv("BNLAB_TEST_FOLDER", "there", 1);
  EXPECT_EQ(asked({"here"}).folder, "there");
  EXPECT_EQ(asked({"here", "--folder", "own"}).folder, "own");
  EXPECT_TRUE(asked({"here", "--all"}).all) << "nobody gave the folder beside it";
  ::unsetenv("BNLAB_TEST_FOLDER");
}

TEST(Arguments, WhatIsWrongIsToldWithWhatIsExpected) {
  EXPECT_EQ(wrong_with({}), "PLACE is required, such as: bnlab try here");
  EXPECT_EQ(wrong_with({"here", "--share"}), "--share: expected S, got nothing");
  EXPECT_EQ(wrong_with({"here", "--share", "2"}), "--share: expected a number from 0 to 1, got 2");
  EXPECT_EQ(wrong_with({"here", "--share", "nan"}), "--share: expected a number from 0 to 1, got nan");
  EXPECT_EQ(wrong_with({"here", "--sizes", "2,x"}), "--sizes: expected a number from 1 to 64, got x");
  EXPECT_EQ(wrong_with({"here", "--sizes", "2.5"}), "--sizes: expected a number from 1 to 64, got 2.5");
  EXPECT_EQ(wrong_with({"here", "--brief", "--count", "-1"}),
            "--count: expected 0 or a number above it, got -1");
  EXPECT_EQ(wrong_with({"here", "--colour", "gren"}),
            "--colour: expected red or green, got gren; did you mean green?");
  EXPECT_EQ(wrong_with({"here", "--sure", "no"}), "--sure: expected yes, got no");
  EXPECT_EQ(wrong_with({"here", "--share", "1", "--share", "0"}), "--share: expected once, got 2 times");
  EXPECT_EQ(wrong_with({"here", "--brief=no"}), "--brief takes no value, got --brief=no");
  EXPECT_EQ(wrong_with({"here", "--count", "1"}), "--count requires --brief; give both or neither");
  EXPECT_EQ(wrong_with({"here", "--brief", "--out", "x"}), "--file excludes --brief; give one of them");
  EXPECT_EQ(wrong_with({"here", "--all", "--share", "1"}), "--all excludes --share; give one of them");
}

TEST(Arguments, HelpSaysWhatIsDeclared) {
  ::setenv("COLUMNS", "100", 1);
  Arguments arguments;
  Request request;
  request.describe(arguments);
  EXPECT_EQ(arguments.usage(), " [options] PLACE [MORE...]");
  for (const char* line :
       {"\nArguments:\n  PLACE                     Where\n", "\n  -h,--help                 Print this help",
        "\n  --sizes N,...             How large (default: [2,8])\n",
        "\n  --share S                 How much (default: 0.5)\n",
        "\n  --count N                 How many (only with --brief)\n",
        "\n  --file,--out FILE         Where to (not with --brief)\n",
        "\n  --folder DIR              From where (default: $BNLAB_TEST_FOLDER)\n",
        "\n  --brief                   In short (not with --file)\n"})
    EXPECT_NE(arguments.help().find(line), std::string::npos) << line << arguments.help();
  ::unsetenv("COLUMNS");
}

}  // namespace
}  // namespace bnlab
