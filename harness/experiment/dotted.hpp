// Dotted keys of a run spec ("optimizer.lr"): reading, writing, and whether a spec knows them.
#pragma once

#include <string>
#include <vector>

#include "harness/components/parameters.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

std::vector<std::string> split(const std::string& text, char separator);

// The first part of a dotted key or path: "optimizer" of "optimizer.lr", "towers" of "towers[1]".
std::string top_level(const std::string& path);

// Whether `path` is `key` or something below it ("strategy[2].momentum" lies within "strategy").
bool lies_within(const std::string& path, const std::string& key);

// {"name": text} for a text, which is the short form of a component; anything else as it is.
Json lifted(const Json& value);

// The name of a component; "" where it has none, or one that is no text.
std::string name_in(const Json& component);

// The object without one of its keys.
Json without(const Json& object, const std::string& key);

// The run without what stands at some dotted keys.
Json apart_from(Json run, const std::vector<std::string>& keys);

const Json* find(const Json& run, const std::string& key);  // null where the key is absent

// Sets a dotted key. Objects on the way are made. False where a value on the way cannot hold keys: it stays
// as it is.
bool set(Json& run, const std::string& key, const Json& value);

// The declarations that a dotted key of a run may mean (several where components share a name for a
// parameter); none if no registered component has it.
std::vector<const Parameter*> declarations(const std::string& key);

// The end of a message about an unknown key beside `known` ones at the top of a spec: what bnlab calls it,
// else the nearest, else the component that has a parameter of this name ("optimizer.momentum"), else all
// that are known.
std::string suggested_key(const std::string& key, const std::vector<std::string>& known);

// The dotted key of a run that is called so, here or elsewhere: "optimizer.lr" of "lr" and "learning-rate".
// "" where none is.
std::string key_called(const std::string& name);

// What is wrong with an unknown dotted key: `unknown key; did you mean "optimizer.lr"?`.
std::string unknown_key(const std::string& key);

}  // namespace bnlab
