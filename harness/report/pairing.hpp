// Which runs of two folders of results belong together: they are paired by what they have in common (the
// resolved spec without the keys in which the folders differ as a whole, and the placement).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/store/record.hpp"

namespace bnlab {

// What records say of the machine, the build, the code and the data that they come from: the values by key,
// such as "libraries.libtorch" -> {"2.11.0"}.
using Facts = std::map<std::string, std::set<std::string>>;
Facts facts_of(const std::vector<const Record*>& records);

// A key whose values differ between A and B.
struct DifferingKey {
  std::string key;
  std::set<std::string> a, b;
};

// What a run is paired by: the keys of its spec that change results, each with its value, and its placement.
using RunIdentity = std::map<std::string, std::string>;

inline constexpr const char* kPlacementKey = "placement";

struct RunPair {
  const Record* a;
  const Record* b;
  RunIdentity common;  // without the keys in which the folders differ as a whole
};

// The finished runs of one folder.
struct ComparedSide {
  std::vector<const Record*> records;
  std::vector<RunIdentity> identities;

  explicit ComparedSide(const std::vector<Record>& all);
  std::set<std::string> values(const std::string& key) const;
};

// Keys that have one value in all of A and another in all of B. Seeds are never exchanged for each other.
std::vector<DifferingKey> differing_keys(const ComparedSide& a, const ComparedSide& b);
std::vector<DifferingKey> differing_facts(const ComparedSide& a, const ComparedSide& b);

std::vector<RunPair> pairs_of(const ComparedSide& a, const ComparedSide& b,
                              const std::vector<DifferingKey>& differing);

// The keys that the name of a cell needs beside strategy, towers and batch: not those that move together with
// others.
std::set<std::string> telling_keys(const std::vector<RunPair>& pairs);
std::string cell_name(const RunPair& pair, const std::set<std::string>& telling);

}  // namespace bnlab
