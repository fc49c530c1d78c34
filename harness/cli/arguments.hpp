// What a command takes, declared, read and explained in one place: a request, a struct whose members have
// their defaults and whose `describe` visits each of them once.
//
//   struct CompareRequest {
//     std::string a;
//     std::optional<Change> only;
//     double tolerance_percent = 1;
//
//     void describe(Arguments& option) {
//       option("A", a, "Folder RESULTS/EXPERIMENT");
//       option("--only KIND", only, "Show rows of this kind alone: better, worse, equal or undecided");
//       option("--tolerance PERCENT", tolerance_percent, "Per cent that count as equal").from(0, 100);
//     }
//   };
//
// A name without dashes is an argument's, which may be left out if it is written [A]. One with dashes and no
// value behind it is a flag's. The type of a member says what its values may be, as for the options of a
// component (components/options.hpp); an option of a list may be repeated, an argument takes several words.
// Help shows a default that is neither empty nor 0.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/components/options.hpp"

namespace bnlab {

using Words = std::vector<std::string>;

// An option, a flag, or an argument without dashes. `name` is the one that messages use.
struct Argument : Parameter {
  Words names;           // all that it has: "--out", "--tensorboard"
  std::string value;     // "N" of "--ranks N"
  std::string expected;  // what messages say a value must be; "": what its type says
  std::string variable;  // the environment's, which is asked where the command line does not say it
  bool splits = false;   // commas separate the values of a list
  bool is_greedy = false;
  std::string needs;  // without this other one it has no effect
  Words excludes;     // it and these others have no effect together
  Words beside;       // if there are any, all but these others have no effect beside it
  Words given;        // by the command line
  // One of them is set: the first says whether a text is a value, the second gets those of the declared type.
  std::function<bool(const std::string&)> take;
  std::function<void(const Json&)> set;

  Argument& needed() { return with(required, true); }
  Argument& from(double least, double most = std::numeric_limits<double>::infinity()) {
    return with(lowest, least).with(highest, most);
  }
  Argument& one_of(Words texts) { return with(choices, std::move(texts)); }
  Argument& expects(std::string what) { return with(expected, std::move(what)); }
  Argument& or_variable(std::string name) { return with(variable, std::move(name)); }
  Argument& by_commas() { return with(splits, true); }
  Argument& greedy() { return with(is_greedy, true); }  // takes all words up to the next option
  Argument& only_with(std::string other) { return with(needs, std::move(other)); }
  Argument& not_with(Words others) { return with(excludes, std::move(others)); }
  Argument& only_beside(Words others) { return with(beside, std::move(others)); }

  bool is_option() const { return name.front() == '-'; }
  bool is_flag() const { return is_option() && value.empty(); }

 private:
  template <class T>
  Argument& with(T& member, T value) {
    member = std::move(value);
    return *this;
  }
};

// What `describe` visits with its members, and what then gives them the words of a command line.
class Arguments {
 public:
  explicit Arguments(Words typed = {});

  // `names`: "A", "[A]", "--json", "--ranks N", "--out,--tensorboard PATH".
  // `taker` is a member, or for other values a function, which gets each text and says whether it is one.
  template <class T>
  Argument& operator()(const std::string& names, T& taker, const std::string& help) {
    Argument& argument = add(names, help);
    if constexpr (std::is_invocable_r_v<bool, T, const std::string&>) {
      argument.take = taker;
    } else {
      declare(argument, taker);
      argument.set = [&taker](const Json& value) { read(value, taker); };
    }
    return argument;
  }

  const std::vector<Argument>& all() const { return all_; }
  const Words& typed() const { return typed_; }  // all words behind the program's name

  // Gives the words behind a command's name to the arguments that they are for. Returns unknown options.
  Words deal(const Words& words);
  bool ask_for_help() const { return !all_.front().given.empty(); }
  // Reads into the members what was given. Throws Error (usage), with an example of the command where
  // something is missing.
  void read_values(const std::string& example);

  std::string usage() const;                            // behind "Usage: bnlab COMMAND"
  std::string help_of(const Argument& argument) const;  // "Folder of the records (default: results)"
  std::string help() const;

 private:
  Argument& add(const std::string& names, const std::string& help);
  void check_beside_others(const Argument& argument, const std::string& example) const;

  std::vector<Argument> all_;
  Words typed_, unexpected_;
};

// "; did you mean sync?", or "" where no known name is near.
std::string did_you_mean(const std::string& name, const Words& known);

// The integer that the whole text is.
std::optional<int64_t> integer_in(const std::string& text);

// Help is as wide as the terminal, or as COLUMNS says.
size_t help_columns();
// A name with a text that begins at a column, on the line below where the name reaches beyond it.
std::string help_entry(const std::string& name, const std::string& text, size_t column);

}  // namespace bnlab
