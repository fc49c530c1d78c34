// Parameters that a component (strategy, model, task, optimizer, or the spec itself) declares.
// The declaration is the one source of truth: it validates specs, fills in defaults, and prints help.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "harness/json.hpp"

namespace bnlab {

struct Parameter {
  enum class Kind {
    integer,
    number,
    boolean,
    text,
    choice,        // one of `choices`
    integer_list,  // a JSON array of integers, each within the range; `length` fixes its size
    text_list,     // a JSON array; each entry one of `choices` if there are any, no entry twice
    component,     // {"name": ..., its parameters} or "name": an entry of the registry `family`
    group,         // an object of `fields`; without fields its keys are free and their owner checks them
    group_list,    // a JSON array of such objects
  };

  std::string name;
  Kind kind = Kind::number;
  Json fallback;     // the default; meaningless where `required`
  std::string help;  // one phrase, with the unit where there is one
  bool required = false;
  bool nullable = false;  // null is a value of its own
  // Of numbers and integers; for text and text_list, `lowest` 1 means "not empty".
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
  bool above_lowest = false;         // the range excludes `lowest`
  bool below_highest = false;        // the range excludes `highest`
  size_t length = 0;                 // integer_list: exact number of entries, 0 for any
  bool or_integer = false;           // integer_list: one integer in place of the list is a value too
  std::vector<std::string> choices;  // choice, text_list
  std::string family;                // component: "strategy", "model", "task", ...
  std::vector<Parameter> fields;     // group, group_list

  // Declarations read as sentences:
  //   number("momentum", 0.1, "weight of the new value").above(0).at_most(1).or_null()
  static Parameter integer(std::string name, Json fallback, std::string help);
  static Parameter number(std::string name, Json fallback, std::string help);
  static Parameter boolean(std::string name, bool fallback, std::string help);
  static Parameter text(std::string name, Json fallback, std::string help);
  static Parameter choice(std::string name, Json fallback, std::vector<std::string> choices,
                          std::string help);
  static Parameter integers(std::string name, Json fallback, size_t length, std::string help);
  static Parameter texts(std::string name, Json fallback, std::vector<std::string> choices, std::string help);
  static Parameter component(std::string name, std::string family, Json fallback, std::string help);
  static Parameter group(std::string name, std::vector<Parameter> fields, std::string help);
  static Parameter groups(std::string name, std::vector<Parameter> fields, std::string help);

  Parameter&& at_least(double value) &&;
  Parameter&& at_most(double value) &&;
  Parameter&& above(double value) &&;
  Parameter&& below(double value) &&;
  Parameter&& or_null() &&;
  Parameter&& null_by_default() &&;  // or_null, and null is what stands where nothing is given
  Parameter&& or_one_integer() &&;
  Parameter&& needed() &&;  // no default: the spec must give it
};

// What a registry knows of an entry without making it.
struct About {
  std::string name;
  std::string summary;  // one line: what it computes
  std::vector<Parameter> parameters;
  std::string source = "";  // paper or discussion that it follows; may be empty
  // Of strategies, for `bnlab explain` and the table of strategies/README.md:
  std::string formula = "";    // lines, as a reader would implement it
  std::string exchanges = "";  // per site and training step, in words: "none", "1 forward, 1 backward"
  std::string use = "";        // when to use it
  std::string limits = "";     // what it cannot do
};

// Mistakes collected over a whole spec, each with its key path (`matrix.strategy[2].momentum`).
class Problems {
 public:
  void add(const std::string& path, const std::string& message) { found_.emplace_back(path, message); }
  bool empty() const { return found_.empty(); }
  const std::vector<std::pair<std::string, std::string>>& found() const { return found_; }

 private:
  std::vector<std::pair<std::string, std::string>> found_;
};

// Checks `given` (a JSON object) against the declarations: unknown keys (with the nearest known
// name), wrong types, ranges, choices, missing needed keys. Returns the object complete with
// defaults, in the order of the declarations; components are resolved recursively to
// {"name": ..., all their parameters}. Mistakes go to `problems`, and the returned value is then
// not to be used.
Json resolve(const std::vector<Parameter>& declared, const Json& given, const std::string& path,
             Problems& problems);

// What a value of this parameter must be: "a number in (0, 1] or null".
std::string expectation(const Parameter& parameter);

// The name among `known` that is nearest to `name` by edit distance, or "" if none is near.
std::string nearest(const std::string& name, const std::vector<std::string>& known);

// The end of a message about an unknown name: `; did you mean "sync"?`, or, if none is near,
// `; known: per_tower, sync`.
std::string suggestion(const std::string& name, const std::vector<std::string>& known);

// A value as messages show it: JSON on one line, shortened.
std::string shown(const Json& value);

// The path of a key below `path`: "optimizer.lr"; a key of other characters is quoted: `["a b"]`.
std::string key_path(const std::string& path, const std::string& key);

}  // namespace bnlab
