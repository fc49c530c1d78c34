// The cells of a matrix: how a run is called without its seed, and which runs are compared with each other.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"

namespace bnlab {

class Cells {
 public:
  explicit Cells(const Experiment& experiment);  // borrows nothing

  // Titles: the axes other than the seed ("towers x batch", "optimizer.lr"), then "strategy".
  std::vector<std::string> columns() const;
  // One text per column: {"8x2", "0.1", "sync"}.
  std::vector<std::string> texts(const RunSpec& run) const;
  // The cell without its strategy and what moves together with it: "8x2, optimizer.lr=0.1", or "all". The
  // strategies of one group are compared with each other.
  std::string group(const RunSpec& run) const;
  // What sets the run's group apart from others beside towers, batch and placement: {"shards": "iid"}.
  std::map<std::string, std::string> conditions(const RunSpec& run) const;

 private:
  struct Column {
    std::string title;
    std::function<std::string(const RunSpec&)> text;
    bool in_group = true;
  };
  void add_axis(const std::string& key, bool in_group, const Experiment& experiment);

  std::vector<Column> columns_;
};

}  // namespace bnlab
