#include "harness/components/options.hpp"

#include <gtest/gtest.h>

namespace bnlab {
namespace {

using Lines = std::vector<std::string>;

// The declaration of an option with this default.
template <class T>
Parameter option(const char* name, const T& value) {
  Parameter parameter;
  parameter.name = name;
  declare(parameter, value);
  return parameter;
}

Parameter component(const char* name, const Json& chosen) {
  std::vector<Parameter> declared;
  Json member = chosen;
  return OptionVisitor(declared).component(name, member, "strategy", "");
}

using Integer = std::optional<int64_t>;
using Number = std::optional<double>;
using Pair = std::array<int64_t, 2>;
using Texts = std::vector<std::string>;
using Integers = std::vector<int64_t>;

Lines mistakes(const std::vector<Parameter>& declared, const Json& given) {
  Problems problems;
  resolve(declared, given, "here", problems);
  Lines lines;
  for (const auto& [path, message] : problems.found()) lines.push_back(path + ": " + message);
  return lines;
}

Lines mistake(Parameter parameter, const Json& value) {
  parameter.name = "key";
  Json given = Json::object();
  given["key"] = value;
  return mistakes({parameter}, given);
}

Json complete(const std::vector<Parameter>& declared, const Json& given) {
  Problems problems;
  Json resolved = resolve(declared, given, "", problems);
  EXPECT_TRUE(problems.empty());
  return resolved;
}

TEST(Resolve, FillsInDefaultsInTheOrderOfTheDeclarations) {
  const std::vector<Parameter> declared = {option("momentum", 0.1), option("groups", 8),
                                           option("affine", true)};
  EXPECT_EQ(complete(declared, {{"groups", 4}}).dump(), R"({"momentum":0.1,"groups":4,"affine":true})");
}

TEST(Resolve, WritesANumberInOneWay) {
  const std::vector<Parameter> declared = {option("lr", 0.1)};
  EXPECT_EQ(complete(declared, {{"lr", 1}}).dump(), R"({"lr":1.0})");
  EXPECT_EQ(complete(declared, Json::parse(R"({"lr": -0.0})")).dump(), R"({"lr":0.0})");
}

TEST(Resolve, SaysWhatIntegersMustBe) {
  EXPECT_EQ(mistake(option("", 1), 1.5), Lines{"here.key: expected an integer, got 1.5"});
  EXPECT_EQ(mistake(option("", 1), true), Lines{"here.key: expected an integer, got true"});
  EXPECT_EQ(mistake(option("", 1).at_least(1), 0), Lines{"here.key: expected an integer >= 1, got 0"});
  EXPECT_EQ(mistake(option("", 1).at_least(1).at_most(4096), 4097),
            Lines{"here.key: expected an integer in [1, 4096], got 4097"});
  EXPECT_EQ(mistake(option("", Integer(1)).at_most(4), "4"),
            Lines{"here.key: expected an integer <= 4 or null, got \"4\""});
  EXPECT_EQ(mistake(option("", 1), nullptr), Lines{"here.key: expected an integer, got null"});
}

TEST(Resolve, SaysWhatNumbersMustBe) {
  EXPECT_EQ(mistake(option("", 1.0).above(0).at_most(1), 1.5),
            Lines{"here.key: expected a number in (0, 1], got 1.5"});
  EXPECT_EQ(mistake(option("", 1.0).above(0), 0), Lines{"here.key: expected a number > 0, got 0"});
  EXPECT_EQ(mistake(option("", Number(1)).above(0).at_most(1), nullptr), Lines{});
  EXPECT_EQ(mistake(option("", 0.5).above(0).below(1), 1),
            Lines{"here.key: expected a number in (0, 1), got 1"});
  EXPECT_EQ(mistake(option("", 0.5).below(1), 1), Lines{"here.key: expected a number < 1, got 1"});
  EXPECT_EQ(mistake(option("", 1.0), INFINITY), Lines{"here.key: expected a number, got null"});
}

TEST(Resolve, SaysWhatTextsAndChoicesMustBe) {
  EXPECT_EQ(mistake(option("", std::string()), 3), Lines{"here.key: expected a text, got 3"});
  EXPECT_EQ(mistake(option("", std::string("a")).not_empty(), ""),
            Lines{"here.key: expected a text that is not empty, got \"\""});
  EXPECT_EQ(mistake(option("", true), 1), Lines{"here.key: expected true or false, got 1"});
  EXPECT_EQ(mistake(option("", std::string("full")).one_of({"full", "stopped"}), "stoped"),
            Lines{"here.key: expected one of \"full\", \"stopped\", got \"stoped\""});
  EXPECT_EQ(mistake(option("", std::string("full")).one_of({"full", "stopped"}), 7),
            Lines{"here.key: expected one of \"full\", \"stopped\", got 7"});
}

TEST(Resolve, SaysWhatListsMustBe) {
  EXPECT_EQ(mistake(option("", Pair{1, 1}).at_least(1), {1, 2, 3}),
            Lines{"here.key: expected a list of 2 integers >= 1, got [1,2,3]"});
  EXPECT_EQ(mistake(option("", Pair{1, 1}).at_least(1), {0, 2.5}),
            (Lines{"here.key[0]: expected an integer >= 1, got 0",
                   "here.key[1]: expected an integer >= 1, got 2.5"}));
  EXPECT_EQ(mistake(option("", Integers()).or_single().at_least(0), -1),
            Lines{"here.key: expected an integer >= 0 or a list of integers >= 0, got -1"});
  const Parameter counted = option("", Texts()).or_single().at_least(2);  // texts, or their number
  EXPECT_EQ(mistake(counted, 2), Lines());
  EXPECT_EQ(mistake(counted, {"a", "b"}), Lines());
  EXPECT_EQ(mistake(counted, 1), Lines{"here.key: expected an integer >= 2 or a list of texts, got 1"});
  EXPECT_EQ(mistake(counted, 2.5), Lines{"here.key: expected an integer >= 2 or a list of texts, got 2.5"});
  EXPECT_EQ(mistake(counted, "a"), Lines{"here.key: expected an integer >= 2 or a list of texts, got \"a\""});
  EXPECT_EQ(mistake(counted, {1}), Lines{"here.key[0]: expected a text, got 1"});
  EXPECT_EQ(mistake(option("", Texts{"saved"}).one_of({"saved", "batch"}), {"batch", "sved", "batch"}),
            (Lines{"here.key[1]: expected one of \"saved\", \"batch\", got \"sved\"",
                   "here.key[2]: \"batch\" appears twice"}));
  EXPECT_EQ(mistake(option("", Texts{"saved"}).one_of({"saved"}).not_empty(), Json::array()),
            Lines{"here.key: expected a list of \"saved\" that is not empty, got []"});
}

TEST(Resolve, AnswersUnknownAndMissingKeys) {
  const std::vector<Parameter> declared = {option("momentum", 0.1), option("steps", 1).needed()};
  EXPECT_EQ(mistakes(declared, {{"momentm", 1}, {"colour", 2}}),
            (Lines{"here.momentm: unknown key; did you mean \"momentum\"?",
                   "here.colour: unknown key; known: momentum, steps",
                   "here.steps: missing, expected an integer"}));
  EXPECT_EQ(mistakes(declared, 3), Lines{"here: expected an object, got 3"});
}

TEST(Resolve, CompletesComponentsFromTheirShortForm) {
  const std::vector<Parameter> declared = {component("s", "fake_wrapped")};
  const std::string whole =
      R"({"s":{"name":"fake_wrapped","base":{"name":"fake_pooled","momentum":0.1,"gradient":"full","group_size":null}}})";
  EXPECT_EQ(complete(declared, Json::object()).dump(), whole);
  EXPECT_EQ(complete(declared, {{"s", "fake_wrapped"}}).dump(), whole);
  EXPECT_EQ(complete(declared, Json::parse(whole)).dump(), whole);
}

TEST(Resolve, TakesAComponentWithoutANameForTheDefault) {
  const std::vector<Parameter> declared = {component("s", "fake_own")};
  EXPECT_EQ(complete(declared, {{"s", {{"momentum", 0.5}}}}).dump(),
            R"({"s":{"name":"fake_own","momentum":0.5}})");
}

TEST(Resolve, SaysWhatComponentsMustBe) {
  const Parameter strategy = component("", "fake_own");
  EXPECT_EQ(mistake(strategy, "fake_poled"),
            Lines{"here.key: unknown strategy \"fake_poled\"; did you mean \"fake_pooled\"?"});
  EXPECT_EQ(mistake(strategy, Json{{"name", "fake_poled"}}),
            Lines{"here.key.name: unknown strategy \"fake_poled\"; did you mean \"fake_pooled\"?"});
  const Parameter needed = component("", nullptr).needed();
  const std::string known = "; known: fake_ghost, fake_groups, fake_own, fake_pooled, fake_wrapped";
  EXPECT_EQ(mistake(needed, Json{{"momentum", 1}}),
            Lines{"here.key.name: missing, expected the name of a known strategy" + known});
  EXPECT_EQ(mistake(needed, Json{{"name", 3}}),
            Lines{"here.key.name: expected the name of a known strategy, got 3" + known});
  EXPECT_EQ(mistake(strategy, 5),
            Lines{"here.key: expected a strategy (its name, or {\"name\": ..., its parameters}), got 5"});
  EXPECT_EQ(
      mistake(strategy,
              Json::parse(R"({"name": "fake_wrapped", "base": {"name": "fake_own", "gradient": "full"}})")),
      Lines{"here.key.base.gradient: unknown key of strategy \"fake_own\"; known: name, momentum"});
  EXPECT_EQ(mistake(strategy, "fake_ghost"),
            Lines{"here.key.virtual_batch: missing, expected an integer >= 1"});
}

struct Placement {
  int64_t ranks = 1;
  void describe(OptionVisitor& option) { option("ranks", ranks, "").at_least(1); }
};

struct File {
  std::string file;
  void describe(OptionVisitor& option) { option("file", file, "").needed(); }
};

TEST(Resolve, ReadsGroupsAndListsOfGroups) {
  const Parameter placement = option("", Placement());
  EXPECT_EQ(mistake(placement, Json{{"rank", 2}}),
            Lines{"here.key.rank: unknown key; did you mean \"ranks\"?"});
  EXPECT_EQ(mistake(placement, 2), Lines{"here.key: expected an object, got 2"});
  const Parameter part = option("part", std::optional<File>());
  EXPECT_EQ(complete({part}, Json::object()).dump(), R"({"part":null})");
  EXPECT_EQ(mistakes({part}, {{"part", Json::object()}}), Lines{"here.part.file: missing, expected a text"});
  EXPECT_EQ(mistake(option("", std::vector<File>()), Json::parse(R"([{"file": "a"}, {}, 4])")),
            (Lines{"here.key[1].file: missing, expected a text", "here.key[2]: expected an object, got 4"}));
  EXPECT_EQ(mistake(option("", Json::object()), Json{{"any", 1}}), Lines{});
}

BNLAB_CHOICE(Colour, red, green)

struct Everything {
  std::optional<int64_t> size;
  double whole = 3;
  Colour colour = Colour::green;
  std::optional<Placement> placement = Placement();
  std::vector<File> files;
  Integers batch;
  Json base = "fake_own";

  void describe(OptionVisitor& option) {
    option("size", size, "");
    option("whole", whole, "");
    option("colour", colour, "");
    option("placement", placement, "");
    option("files", files, "");
    option("batch", batch, "").or_single();
    option.component("base", base, "strategy", "");
  }
};

TEST(Options, AreDeclaredByTheirTypesAndDefaults) {
  std::string all;
  for (const Parameter& parameter : declared<Everything>())
    all += parameter.name + " = " + parameter.fallback.dump() + ": " + expectation(parameter) + "\n";
  EXPECT_EQ(all,
            "size = null: an integer or null\n"
            "whole = 3: a number\n"
            "colour = \"green\": one of \"red\", \"green\"\n"
            "placement = {}: an object or null\n"
            "files = []: a list of objects\n"
            "batch = []: an integer or a list of integers\n"
            "base = \"fake_own\": a strategy (its name, or {\"name\": ..., its parameters})\n");
}

TEST(Options, AreReadFromWhatWasResolved) {
  const Json given = Json::parse(
      R"({"size": 4, "colour": "red", "placement": null, "files": [{"file": "a"}], "batch": [1, 2], "base": "fake_pooled"})");
  const auto options = read_options<Everything>(complete(declared<Everything>(), given));
  EXPECT_EQ(options.size, 4);
  EXPECT_EQ(options.whole, 3);
  EXPECT_EQ(options.colour, Colour::red);
  EXPECT_FALSE(options.placement.has_value());
  EXPECT_EQ(options.files.at(0).file, "a");
  EXPECT_EQ(options.batch, (Integers{1, 2}));
  EXPECT_EQ(read_options<Everything>(Json{{"batch", 3}}).batch, Integers{3});
  EXPECT_EQ(options.base.at("gradient"), "full");
  const auto standard = read_options<Everything>(complete(declared<Everything>(), Json::object()));
  EXPECT_EQ(standard.colour, Colour::green);
  EXPECT_EQ(standard.placement->ranks, 1);
}

TEST(Choice, HasItsNameBothWays) {
  EXPECT_EQ(name_of(Colour::red), "red");
  EXPECT_EQ(choice_of<Colour>("green"), Colour::green);
  EXPECT_THROW(choice_of<Colour>("blue"), std::logic_error);
  EXPECT_THROW(name_of(static_cast<Colour>(7)), std::logic_error);  // std::out_of_range is one
}

TEST(Nearest, FindsSlipsAndRefusesGuesses) {
  const std::vector<std::string> known = {"per_tower", "sync", "group_norm"};
  EXPECT_EQ(nearest("snyc", known), "sync");
  EXPECT_EQ(nearest("groupnorm", known), "group_norm");
  EXPECT_EQ(nearest("instance", known), "");
  EXPECT_EQ(nearest(std::string(100000, 'x'), known), "");
}

TEST(Messages, StayOnOneShortLine) {
  EXPECT_EQ(key_path("a", "b"), "a.b");
  EXPECT_EQ(key_path("", "b"), "b");
  EXPECT_EQ(key_path("a", "two words\n"), R"(a["two words\n"])");
  EXPECT_EQ(shown("\x1b[31m"), R"("\u001b[31m")");
  EXPECT_EQ(shown(std::string(1000, 'x')).size(), 60u);
}

}  // namespace
}  // namespace bnlab
