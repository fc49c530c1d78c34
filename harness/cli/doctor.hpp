// What `bnlab doctor` finds, one line each.
#pragma once

#include <string>
#include <vector>

namespace bnlab {

struct Finding {
  std::string what, found = {};
  std::string problem = {}, cure = {};  // empty if all is well
};

// What `bnlab run` would do as the process of a launcher's world that this one is, and why.
std::vector<Finding> findings_of_launcher();

}  // namespace bnlab
