#include "harness/experiment/document.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "harness/experiment/dotted.hpp"
#include "harness/experiment/strict_json.hpp"
#include "harness/support/shell.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// Lays one document over its base.
class Merge {
 public:
  Merge(Document base, std::string base_file) : base_(std::move(base)), base_file_(std::move(base_file)) {}

  Document over(const Json& ours) {
    Document merged;
    merged.value = objects(base_.value, ours, "");
    merged.origins = origins_;
    return merged;
  }

 private:
  Json objects(const Json& base, const Json& ours, const std::string& path) {
    Json merged = Json::object();
    for (const auto& [key, value] : base.items()) {
      const std::string at = key_path(path, key);
      if (!ours.contains(key)) {
        merged[key] = value;
        remember(at);
      } else if (path != "matrix" || !ours[key].is_null()) {
        merged[key] = values(value, ours[key], at);
      }
    }
    for (const auto& [key, value] : ours.items())
      if (!base.contains(key)) merged[key] = value;
    return merged;
  }

  Json values(const Json& base, const Json& ours, const std::string& path) {
    // A text beside an object is the short form of a component.
    const Json below = ours.is_object() ? lifted(base) : base;
    const Json above = base.is_object() ? lifted(ours) : ours;
    if (!below.is_object() || !above.is_object()) return ours;
    const bool renamed = below.contains("name") && above.contains("name") && below["name"] != above["name"];
    return renamed ? ours : objects(below, above, path);
  }

  // What lies at `path` comes from the base, or from where the base has it.
  void remember(const std::string& path) {
    origins_[path] = base_file_;
    for (const auto& [origin, file] : base_.origins)
      if (lies_within(origin, path))
        origins_[origin] = file;
      else if (lies_within(path, origin))
        origins_[path] = file;
  }

  const Document base_;
  const std::string base_file_;
  std::map<std::string, std::string> origins_;
};

// One name for a file however it is reached; a file that does not exist keeps the name it was given.
fs::path identity(const fs::path& file) {
  std::error_code error;
  const fs::path same = fs::weakly_canonical(file, error);
  return error ? file : same;
}

// Follows `extends`. `above` holds the files that led here, to refuse a cycle.
std::optional<Document> read(const std::string& file, std::vector<fs::path>& above, Mistakes& mistakes) {
  std::optional<Json> ours = read_strict_json(file, mistakes);
  if (!ours) return std::nullopt;
  above.push_back(identity(file));
  Json extends;
  if (ours->contains("extends")) {
    extends = (*ours)["extends"];
    ours = without(*ours, "extends");
  }
  if (extends.is_null()) return Document{*ours, {}};
  if (!extends.is_string() || extends == "") {
    mistakes.add_in(file, "extends", "expected the path of a spec, got " + shown(extends));
    return std::nullopt;
  }
  const fs::path base_path = (fs::path(file).parent_path() / extends.get<std::string>()).lexically_normal();
  if (std::ranges::find(above, identity(base_path)) != above.end()) {
    mistakes.add_in(file, "extends", "a cycle: " + shown(extends) + " is extended by, or is, this spec");
    return std::nullopt;
  }
  const std::string base_file = base_path.string();
  const std::optional<Document> base = read(base_file, above, mistakes);
  if (!base) {
    mistakes.add_in(file, "extends", "the base spec " + shown(extends) + " cannot be used");
    return std::nullopt;
  }
  return Merge(*base, base_file).over(*ours);
}

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
  if (!matrix.is_object()) return true;
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

// The key of tune.grid of which `key` is a part, or "".
std::string tuned_around(const Json& spec, const std::string& key) {
  const Json tune = spec.value("tune", Json());
  const Json grid = tune.is_object() ? tune.value("grid", Json()) : Json();
  for (const auto& [tuned, unused] : grid.items())
    if (tuned != key && lies_within(key, tuned)) return tuned;
  return "";
}

// A key that is given a value is not tuned.
void drop_from_tune(Json& spec, const std::string& key) {
  if (!spec.contains("tune") || !spec["tune"].is_object()) return;
  Json& tune = spec["tune"];
  const bool length = (key == "steps" || key == "epochs") && tune.contains("lengths");
  std::vector<std::string> settings;  // the key, or parts of it
  if (tune.contains("grid") && tune["grid"].is_object()) {
    for (const auto& [tuned, unused] : tune["grid"].items())
      if (lies_within(tuned, key)) settings.push_back(tuned);
  }
  const bool setting = !settings.empty();
  if (length) tune = without(without(tune, "lengths"), "gain_below");
  for (const std::string& tuned : settings) tune["grid"] = without(tune["grid"], tuned);
  const auto has = [&](const char* part) { return tune.contains(part) && !tune[part].empty(); };
  if ((length || setting) && !has("grid") && !has("lengths"))
    spec = without(spec, "tune");
  else if (setting && !has("grid"))
    tune = without(tune, "halvings");
}

void override_key(Document& document, const std::string& key, const Json& value, const std::string& where,
                  Mistakes& mistakes) {
  if (key == "extends") {
    mistakes.add_in(where, key, "says in a spec's file what it is based on, and only there");
  } else if (key.starts_with(kMatrix)) {  // what follows is one key of the matrix, dots and all
    Json& matrix = document.value["matrix"];
    if (matrix.is_null() || matrix.is_object()) matrix[key.substr(std::string(kMatrix).size())] = value;
  } else if (const std::string whole = tuned_around(document.value, key); !whole.empty()) {
    mistakes.add_in(
        where, key,
        "tune.grid chooses the whole of " + whole + "; give " + whole + ", which is not tuned then");
  } else if (give_way(document.value, key, where, mistakes)) {
    drop_from_tune(document.value, key);
    if (!set(document.value, key, value))
      mistakes.add_in(where, key, "unknown key: what the spec says there is no object, and holds no keys");
  }
  document.origins[key] = where;
}

// What an override says, part by part: optimizer={"lr": 1} says optimizer.lr, optimizer=adam optimizer.name.
using Parts = std::map<std::string, Json>;
constexpr std::string_view kName = ".name";

void add_parts(const std::string& key, const Json& value, Parts& parts) {
  if (value.is_object())
    for (const auto& [name, entry] : value.items()) add_parts(key_path(key, name), entry, parts);
  else
    parts[value.is_string() && !key.ends_with(kName) ? key + std::string(kName) : key] = value;
}

// The keys of a run to which a part of an override gives several values.
std::vector<std::string> moved_by(const std::string& part) {
  for (const std::string axes : {kMatrix, "tune.grid."})
    if (part.starts_with(axes)) return split(part.substr(axes.size()), ',');
  return lies_within(part, "tune.lengths") ? std::vector<std::string>{"steps", "epochs"}
                                           : std::vector<std::string>{};
}

bool moves(const std::string& part, const std::string& fixed) {
  return std::ranges::any_of(moved_by(part), [&](const auto& key) { return lies_within(fixed, key); });
}

// Adds a mistake where two overrides cannot both hold, whichever comes first. Returns whether they can.
bool agree(const Override& a, const Override& b, const std::string& where, Mistakes& mistakes) {
  const auto refuse = [&](const std::string& key, const std::string& why) {
    const bool named = key.ends_with(kName);
    mistakes.add_in(where, named ? key.substr(0, key.size() - kName.size()) : key,
                    why + "; give one of them");
    return false;
  };
  const auto twice = [&](const std::string& key, const Json& one, const Json& other) {
    return refuse(key, "given as " + shown(one) + " and as " + shown(other));
  };
  if (a.first == b.first && a.second != b.second) return twice(a.first, a.second, b.second);
  Parts of_a, of_b;
  add_parts(a.first, a.second, of_a);
  add_parts(b.first, b.second, of_b);
  for (const auto& [one, value] : of_a) {
    for (const auto& [other, other_value] : of_b) {
      if (one == other && value != other_value) return twice(one, value, other_value);
      if (moves(one, other) || moves(other, one)) {
        const auto& [axis, fixed] = moves(one, other) ? std::tie(one, other) : std::tie(other, one);
        return refuse(fixed, "given one value for all runs, and several by " + axis);
      }
    }
  }
  return true;
}

// Several values for a key that takes one, as other programs write a sweep: the axis that they are here.
void tell_axis(Document& document, const std::string& key, const std::string& text, const Json& value) {
  const auto known = declarations(key);
  if (value.is_object() || key.starts_with(kMatrix) || std::ranges::any_of(known, &Parameter::list)) return;
  Json values = value.is_array() ? value : Json::array();
  if (!value.is_array())
    for (const std::string& one : split(text, ','))
      values.push_back(Json::accept(one) ? Json::parse(one) : Json(one));
  if (values.size() < 2) return;
  document.meant[key] = "; several values are an axis: " + shell_word(kMatrix + key + "=" + values.dump());
}

}  // namespace

std::optional<Document> read_document(const std::string& file, Mistakes& mistakes) {
  std::vector<fs::path> above;
  return read(file, above, mistakes);
}

Json laid_over(const Json& base, const Json& ours) {
  return Merge({base, {}}, "").over(ours).value;
}

void override_keys(Document& document, std::vector<Override> overrides, const std::string& where,
                   Mistakes& mistakes) {
  std::set<std::string> contradicted;
  for (auto a = overrides.begin(); a != overrides.end(); ++a) {
    for (auto b = std::next(a); b != overrides.end(); ++b)
      if (!agree(*a, *b, where, mistakes)) contradicted.insert({a->first, b->first});
  }
  std::erase_if(overrides, [&](const Override& each) { return contradicted.contains(each.first); });
  // Axes before what they would set, a whole before its parts: the order in which they are given is none.
  std::ranges::stable_sort(overrides, {}, [](const Override& each) {
    return std::pair(top_level(each.first) != "matrix", std::ranges::count(each.first, '.'));
  });
  for (const auto& [key, value] : overrides) override_key(document, key, value, where, mistakes);
}

void override_keys(Document& document, const std::vector<std::string>& overrides, Mistakes& mistakes) {
  const auto has_no_key = [](const std::string& text) {
    return text.find('=') == std::string::npos || text.front() == '=';
  };
  const auto bad = std::ranges::find_if(overrides, has_no_key);
  if (const auto more = std::ranges::count_if(overrides, has_no_key); more > 0) {
    mistakes.add_in(kCommandLine, "",
                    "expected KEY=VALUE behind the spec, such as steps=10, got " + shown(*bad) +
                        (more > 1 ? " and " + std::to_string(more - 1) + " more without a key" : "") +
                        (bad->ends_with(".json") ? "; one spec at a time" : ""));
  }
  std::vector<Override> read;
  for (const std::string& text : overrides) {
    if (has_no_key(text)) continue;
    const size_t equals = text.find('=');
    read.emplace_back(text.substr(0, equals), value_of(text.substr(equals + 1), mistakes));
    tell_axis(document, read.back().first, text.substr(equals + 1), read.back().second);
  }
  override_keys(document, std::move(read), kCommandLine, mistakes);
}

}  // namespace bnlab
