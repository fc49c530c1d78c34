// The mistakes of a spec and of the specs that it extends, each with its file and key path.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/components/parameters.hpp"

namespace bnlab {

class Mistakes {
 public:
  explicit Mistakes(std::string file) : file_(std::move(file)) {}

  // Which paths come from a base spec: path -> file. All others come from the spec itself. `meant`: the end
  // of a message about a path.
  void locate(std::map<std::string, std::string> origins, std::map<std::string, std::string> meant = {}) {
    origins_ = std::move(origins);
    meant_ = std::move(meant);
  }

  // A mistake is kept once, however many cells of a matrix it spoils.
  void add(const std::string& path, const std::string& message);
  void add_in(const std::string& file, const std::string& path, const std::string& message);
  void add(const Problems& problems);

  bool empty() const { return lines_.empty(); }
  void throw_if_any() const;  // one Error (spec), a line per mistake

 private:
  std::string file_;
  std::map<std::string, std::string> origins_, meant_;
  std::vector<std::string> lines_;  // in the order of discovery
  std::set<std::string> known_;
};

}  // namespace bnlab
