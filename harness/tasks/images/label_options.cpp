#include "harness/tasks/images/label_options.hpp"

#include <algorithm>
#include <optional>

#include "harness/tasks/task.hpp"

namespace bnlab {
namespace {

constexpr int64_t kMostClasses = 256;
constexpr const char* kOther = "other";

// The class that a mapping's value names; nothing if it names none.
std::optional<int16_t> class_of(const Json& value, const Classes& classes) {
  if (value == "void") {
    return static_cast<int16_t>(Task::kVoid);
  }
  for (size_t c = 0; c < classes.names.size(); ++c) {
    if (value == classes.names[c]) {
      return static_cast<int16_t>(c);
    }
  }
  const bool is_class = value.is_number_integer() && value >= 0 && value < classes.count;
  return is_class ? std::optional(value.get<int16_t>()) : std::nullopt;
}

bool is_id(const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return digits && text.size() <= 3 && std::stoi(text) <= 255 && std::to_string(std::stoi(text)) == text;
}

}  // namespace

void declare(Parameter& parameter, const Classes&) {
  parameter.kind = Parameter::Kind::text;
  parameter.list = true;
}

void read(const Json& value, Classes& classes) {
  if (value.is_array()) {
    classes.names = value.get<std::vector<std::string>>();
  }
  classes.count = value.is_array() ? std::ssize(classes.names) : value.get<int64_t>();
}

void LabelOptions::describe(OptionVisitor& option) {
  option("classes", classes, "how many classes the labels show, or their names in the order of their ids")
      .or_single()
      .at_least(2)
      .at_most(kMostClasses)
      .not_empty()
      .needed();
  option("void", void_ids, "ids of pixels that count nowhere").at_least(0).at_most(255);
  option(
      "mapping", mapping,
      "class of each id, by number or name, or \"void\": {\"7\": 0, \"8\": \"road\", \"other\": \"void\"}; "
      "empty: ids are classes");
}

void LabelOptions::check(Problems& problems) const {
  if (classes.count < 2 || classes.count > kMostClasses) {
    problems.add("classes", "expected 2 to " + std::to_string(kMostClasses) + " names, got " +
                                std::to_string(classes.count));
  }
  for (const auto& [id, value] : mapping.items()) {
    const std::string path = key_path("mapping", id);
    if (id != kOther && !is_id(id)) {
      problems.add(path, "expected an id from \"0\" to \"255\", or \"other\"");
    }
    if (!class_of(value, classes)) {
      problems.add(path, "expected a class from 0 to " + std::to_string(classes.count - 1) +
                             (classes.names.empty() ? "" : ", its name") + " or \"void\", got " +
                             shown(value));
    }
  }
}

LabelMap LabelOptions::map() const {
  LabelMap map = label_map(mapping.empty() ? classes.count : 0, void_ids);
  if (mapping.contains(kOther)) {
    std::ranges::replace(map.class_of, LabelMap::kForeign, *class_of(mapping[kOther], classes));
  }
  for (const auto& [id, value] : mapping.items()) {
    if (id != kOther) {
      map.class_of.at(static_cast<size_t>(std::stoi(id))) = *class_of(value, classes);
    }
  }
  map.cure = "name the id in `void`, or its class in `mapping`, or correct `classes`";
  return map;
}

std::vector<std::string> LabelOptions::names() const {
  std::vector<std::string> all = classes.names;
  for (int64_t c = std::ssize(all); c < classes.count; ++c) {
    all.push_back(std::to_string(c));
  }
  return all;
}

}  // namespace bnlab
