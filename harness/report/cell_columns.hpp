// The cells of a matrix (a cell is a run without its seed) in words: the columns of their table, and what they are called.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"

namespace bnlab {

// How a cell is called, and which cells it is compared with.
struct CellName {
  std::vector<std::string> cell;  // one text per column: {"8x2", "0.1", "sync"}
  std::string strategy;           // its label
  // The cell without its strategy and what moves together with it: "8x2, optimizer.lr=0.1", or "all". The
  // strategies of one group are compared with each other.
  std::string group;
  // What sets the group apart from others beside towers, batch and placement: {"shards": "iid"}.
  std::map<std::string, std::string> conditions;
};

// A column of the table of cells, which shows the values of some keys, "8x2".
struct CellColumn {
  std::string title;
  std::vector<std::string> keys;
  bool in_group;  // false: it moves together with the strategy
};

// The columns but for the strategy, which is the last.
std::vector<CellColumn> columns_of(const Experiment& experiment);

CellName name_of(const RunSpec& run, const std::vector<CellColumn>& columns);

// The cell without some dotted keys, which a contrast compares: "8x2, sync", or "all".
std::string group_apart_from(const std::vector<std::string>& compared, const RunSpec& run,
                             const std::vector<CellColumn>& columns);

// A value that stands at a dotted key, components by their labels: "none" for null.
std::string text_at(const std::string& key, const Json& value);

}  // namespace bnlab
