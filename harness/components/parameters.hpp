// How an option is declared: its kind, default, range and help. Components do not write declarations by hand;
// they come from the `describe` of an options struct (options.hpp). They check specs, fill in defaults and
// print help.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "harness/components/words.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

struct Parameter {
  enum class Kind {
    integer,
    number,
    boolean,
    text,       // one of `choices`, if there are any
    component,  // {"name": ..., its options} or "name": an entry of the registry `family`
    group,      // an object of `fields`; without fields its keys are free and their owner checks them
  };

  std::string name;
  Kind kind = Kind::number;
  Json fallback = {};     // the default; meaningless where `required`
  std::string help = {};  // one phrase, with the unit where there is one
  bool required = false;
  bool nullable = false;  // null is a value of its own
  bool list = false;      // a JSON array of such values; no text stands in it twice
  size_t length = 0;      // a list's exact number of entries, 0 for any
  bool or_one = false;    // a list may be one number, which for texts is their count
  bool filled = false;    // a text or a list must not be empty
  double lowest = -std::numeric_limits<double>::infinity();
  double highest = std::numeric_limits<double>::infinity();
  bool above_lowest = false;   // the range excludes `lowest`
  bool below_highest = false;  // the range excludes `highest`
  std::vector<std::string> choices = {};
  std::string family = {};  // "strategy", "model", "task", ...
  std::vector<Parameter> fields = {};

  // Declarations read as sentences: option("momentum", momentum, "weight of the new
  // value").above(0).at_most(1)
  Parameter& at_least(double value) { return with(lowest, value); }
  Parameter& at_most(double value) { return with(highest, value); }
  Parameter& above(double value) { return with(above_lowest, true).with(lowest, value); }
  Parameter& below(double value) { return with(below_highest, true).with(highest, value); }
  Parameter& not_empty() { return with(filled, true); }
  Parameter& or_single() { return with(or_one, true); }  // one value is read as a list of one
  Parameter& needed() { return with(required, true); }   // no default: the spec must give it
  // Of a text, or of each text in a list.
  Parameter& one_of(std::vector<std::string> names) { return with(choices, std::move(names)); }

 private:
  template <class T>
  Parameter& with(T& member, T value) {
    member = std::move(value);
    return *this;
  }
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

// A value as messages show it: JSON on one line, shortened.
std::string shown(const Json& value);

// The path of a key below `path`: "optimizer.lr"; a key of other characters is quoted: `["a b"]`.
std::string key_path(const std::string& path, const std::string& key);

}  // namespace bnlab
