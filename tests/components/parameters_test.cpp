#include "harness/components/parameters.hpp"

#include <gtest/gtest.h>

namespace bnlab {
namespace {

using P = Parameter;
using Lines = std::vector<std::string>;

Lines mistakes(const std::vector<Parameter>& declared, const Json& given) {
  Problems problems;
  resolve(declared, given, "here", problems);
  Lines lines;
  for (const auto& [path, message] : problems.found()) {
    lines.push_back(path + ": " + message);
  }
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
  const std::vector<Parameter> declared = {P::number("momentum", 0.1, ""), P::integer("groups", 8, ""),
                                           P::boolean("affine", true, "")};
  EXPECT_EQ(complete(declared, {{"groups", 4}}).dump(), R"({"momentum":0.1,"groups":4,"affine":true})");
}

TEST(Resolve, WritesANumberInOneWay) {
  const std::vector<Parameter> declared = {P::number("lr", 0.1, "")};
  EXPECT_EQ(complete(declared, {{"lr", 1}}).dump(), R"({"lr":1.0})");
  EXPECT_EQ(complete(declared, Json::parse(R"({"lr": -0.0})")).dump(), R"({"lr":0.0})");
}

TEST(Resolve, SaysWhatIntegersMustBe) {
  EXPECT_EQ(mistake(P::integer("", 1, ""), 1.5), Lines{"here.key: expected an integer, got 1.5"});
  EXPECT_EQ(mistake(P::integer("", 1, ""), true), Lines{"here.key: expected an integer, got true"});
  EXPECT_EQ(mistake(P::integer("", 1, "").at_least(1), 0),
            Lines{"here.key: expected an integer >= 1, got 0"});
  EXPECT_EQ(mistake(P::integer("", 1, "").at_least(1).at_most(4096), 4097),
            Lines{"here.key: expected an integer in [1, 4096], got 4097"});
  EXPECT_EQ(mistake(P::integer("", 1, "").at_most(4).or_null(), "4"),
            Lines{"here.key: expected an integer <= 4 or null, got \"4\""});
  EXPECT_EQ(mistake(P::integer("", 1, ""), nullptr), Lines{"here.key: expected an integer, got null"});
}

TEST(Resolve, SaysWhatNumbersMustBe) {
  EXPECT_EQ(mistake(P::number("", 1, "").above(0).at_most(1), 1.5),
            Lines{"here.key: expected a number in (0, 1], got 1.5"});
  EXPECT_EQ(mistake(P::number("", 1, "").above(0), 0), Lines{"here.key: expected a number > 0, got 0"});
  EXPECT_EQ(mistake(P::number("", 1, "").above(0).at_most(1).or_null(), nullptr), Lines{});
  EXPECT_EQ(mistake(P::number("", 0.5, "").above(0).below(1), 1),
            Lines{"here.key: expected a number in (0, 1), got 1"});
  EXPECT_EQ(mistake(P::number("", 0.5, "").below(1), 1), Lines{"here.key: expected a number < 1, got 1"});
  EXPECT_EQ(mistake(P::number("", 1, ""), INFINITY), Lines{"here.key: expected a number, got null"});
}

TEST(Resolve, SaysWhatTextsAndChoicesMustBe) {
  EXPECT_EQ(mistake(P::text("", "", ""), 3), Lines{"here.key: expected a text, got 3"});
  EXPECT_EQ(mistake(P::text("", "a", "").at_least(1), ""),
            Lines{"here.key: expected a text that is not empty, got \"\""});
  EXPECT_EQ(mistake(P::boolean("", true, ""), 1), Lines{"here.key: expected true or false, got 1"});
  EXPECT_EQ(mistake(P::choice("", "full", {"full", "stopped"}, ""), "stoped"),
            Lines{"here.key: expected one of \"full\", \"stopped\", got \"stoped\""});
  EXPECT_EQ(mistake(P::choice("", "full", {"full", "stopped"}, ""), 7),
            Lines{"here.key: expected one of \"full\", \"stopped\", got 7"});
}

TEST(Resolve, SaysWhatListsMustBe) {
  EXPECT_EQ(mistake(P::integers("", {1, 1}, 2, "").at_least(1), {1, 2, 3}),
            Lines{"here.key: expected a list of 2 integers >= 1, got [1,2,3]"});
  EXPECT_EQ(mistake(P::integers("", {1, 1}, 2, "").at_least(1), {0, 2.5}),
            (Lines{"here.key[0]: expected an integer >= 1, got 0",
                   "here.key[1]: expected an integer >= 1, got 2.5"}));
  EXPECT_EQ(mistake(P::integers("", 1, 0, "").at_least(0).or_one_integer(), -1),
            Lines{"here.key: expected an integer >= 0 or a list of integers >= 0, got -1"});
  EXPECT_EQ(mistake(P::texts("", {"saved"}, {"saved", "batch"}, ""), {"batch", "sved", "batch"}),
            (Lines{"here.key[1]: expected one of \"saved\", \"batch\", got \"sved\"",
                   "here.key[2]: \"batch\" appears twice"}));
  EXPECT_EQ(mistake(P::texts("", {"saved"}, {"saved"}, "").at_least(1), Json::array()),
            Lines{"here.key: expected a list of \"saved\" that is not empty, got []"});
}

TEST(Resolve, AnswersUnknownAndMissingKeys) {
  const std::vector<Parameter> declared = {P::number("momentum", 0.1, ""),
                                           P::integer("steps", 1, "").needed()};
  EXPECT_EQ(mistakes(declared, {{"momentm", 1}, {"colour", 2}}),
            (Lines{"here.momentm: unknown key; did you mean \"momentum\"?",
                   "here.colour: unknown key; known: momentum, steps",
                   "here.steps: missing, expected an integer"}));
  EXPECT_EQ(mistakes(declared, 3), Lines{"here: expected an object, got 3"});
}

TEST(Resolve, CompletesComponentsFromTheirShortForm) {
  const std::vector<Parameter> declared = {P::component("s", "strategy", "fake_wrapped", "")};
  const std::string whole =
      R"({"s":{"name":"fake_wrapped","base":{"name":"fake_pooled","momentum":0.1,"gradient":"full","group_size":null}}})";
  EXPECT_EQ(complete(declared, Json::object()).dump(), whole);
  EXPECT_EQ(complete(declared, {{"s", "fake_wrapped"}}).dump(), whole);
  EXPECT_EQ(complete(declared, Json::parse(whole)).dump(), whole);
}

TEST(Resolve, TakesAComponentWithoutANameForTheDefault) {
  const std::vector<Parameter> declared = {P::component("s", "strategy", "fake_own", "")};
  EXPECT_EQ(complete(declared, {{"s", {{"momentum", 0.5}}}}).dump(),
            R"({"s":{"name":"fake_own","momentum":0.5}})");
}

TEST(Resolve, SaysWhatComponentsMustBe) {
  const Parameter strategy = P::component("", "strategy", "fake_own", "");
  EXPECT_EQ(mistake(strategy, "fake_poled"),
            Lines{"here.key: unknown strategy \"fake_poled\"; did you mean \"fake_pooled\"?"});
  EXPECT_EQ(mistake(strategy, Json{{"name", "fake_poled"}}),
            Lines{"here.key.name: unknown strategy \"fake_poled\"; did you mean \"fake_pooled\"?"});
  const Parameter needed = P::component("", "strategy", nullptr, "").needed();
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

TEST(Resolve, ReadsGroupsAndListsOfGroups) {
  const Parameter placement = P::group("", {P::integer("ranks", 1, "").at_least(1)}, "");
  EXPECT_EQ(mistake(placement, Json{{"rank", 2}}),
            Lines{"here.key.rank: unknown key; did you mean \"ranks\"?"});
  EXPECT_EQ(mistake(placement, 2), Lines{"here.key: expected an object, got 2"});
  const Parameter part = P::group("part", {P::text("file", nullptr, "").needed()}, "").null_by_default();
  EXPECT_EQ(complete({part}, Json::object()).dump(), R"({"part":null})");
  EXPECT_EQ(mistakes({part}, {{"part", Json::object()}}), Lines{"here.part.file: missing, expected a text"});
  const Parameter contrasts = P::groups("", {P::text("metric", "", "").needed()}, "");
  EXPECT_EQ(
      mistake(contrasts, Json::parse(R"([{"metric": "a"}, {}, 4])")),
      (Lines{"here.key[1].metric: missing, expected a text", "here.key[2]: expected an object, got 4"}));
  const Parameter free = P::group("", {}, "");
  EXPECT_EQ(mistake(free, Json{{"any", 1}}), Lines{});
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
