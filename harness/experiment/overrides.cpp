#include "harness/experiment/overrides.hpp"

#include <algorithm>

#include "harness/experiment/dotted.hpp"
#include "harness/experiment/strict_json.hpp"

namespace bnlab {
namespace {

constexpr const char* kCommandLine = "command line";
constexpr const char* kMatrix = "matrix.";

// The JSON that a text spells, else the text itself.
Json value_of(const std::string& text, Mistakes& mistakes) {
  const bool spelt = Json::accept(text);
  const auto read =
      spelt ? parse_strict_json("{\"value\": " + text + "}", kCommandLine, mistakes) : std::nullopt;
  return read ? read->at("value") : Json(text);
}

// Takes out the axis that moves the key. False, with a mistake, where the key cannot be overridden.
bool give_way(Json& spec, const std::string& key, const std::string& where, Mistakes& mistakes) {
  const Json matrix = spec.value("matrix", Json());
  if (!matrix.is_object()) {
    return true;
  }
  for (const auto& [axis, unused] : matrix.items()) {
    const std::vector<std::string> keys = split(axis, ',');
    const bool alone = keys.size() == 1 && axis == key;
    if (alone) {
      spec["matrix"] = without(matrix, axis);
      return true;
    }
    if (std::ranges::any_of(keys, [&](const std::string& moved) { return lies_within(key, moved); })) {
      mistakes.add_in(where, key,
                      "the axis matrix." + axis + " sets it in every run; set " + kMatrix + axis +
                          " instead" + (where == kCommandLine ? ", or choose runs with --only" : ""));
      return false;
    }
  }
  return true;
}

// A key that is given a value is not tuned.
void drop_from_grid(Json& spec, const std::string& key) {
  if (Json* grid = spec.contains("tune") && spec["tune"].is_object() && spec["tune"].contains("grid")
                       ? &spec["tune"]["grid"]
                       : nullptr;
      grid != nullptr && grid->contains(key)) {
    *grid = without(*grid, key);
    if (grid->empty()) {
      spec = without(spec, "tune");
    }
  }
}

}  // namespace

void override_key(Document& document, const std::string& key, const Json& value, const std::string& where,
                  Mistakes& mistakes) {
  if (key.starts_with(kMatrix)) {  // what follows is one key of the matrix, dots and all
    Json& matrix = document.value["matrix"];
    if (matrix.is_null() || matrix.is_object()) {
      matrix[key.substr(std::string(kMatrix).size())] = value;
    }
  } else if (give_way(document.value, key, where, mistakes)) {
    drop_from_grid(document.value, key);
    set(document.value, key, value);
  }
  document.origins[key] = where;
}

void override_keys(Document& document, const std::vector<std::string>& overrides, Mistakes& mistakes) {
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      mistakes.add_in(kCommandLine, "",
                      "expected KEY=VALUE behind the spec, such as steps=10, got " + shown(text));
      continue;
    }
    const std::string key = text.substr(0, equals);
    override_key(document, key, value_of(text.substr(equals + 1), mistakes), kCommandLine, mistakes);
  }
}

}  // namespace bnlab
