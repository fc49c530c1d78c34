// Which runs of two folders of results belong together, and in what the folders differ as a whole.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/store/record.hpp"

namespace bnlab {

// A key whose values differ between A and B.
struct DifferingKey {
  std::string key;
  std::set<std::string> a, b;
};

// What a run is paired by: the keys of its spec that change results, each with its value, and its placement.
using RunIdentity = std::map<std::string, std::string>;

struct RunPair {
  const Record* a;
  const Record* b;
  RunIdentity common;  // without the keys in which the folders differ as a whole
};

struct Pairing {
  std::vector<DifferingKey> spec;         // keys with one value in all of A and another in all of B
  std::vector<DifferingKey> environment;  // machine, versions, revision of the code
  std::vector<RunPair> pairs;             // in the order of A
  int runs_a = 0, runs_b = 0;             // finished ones
};

// Borrows from the records. Seeds are never exchanged for each other.
Pairing pair_runs(const std::vector<Record>& a, const std::vector<Record>& b);

}  // namespace bnlab
