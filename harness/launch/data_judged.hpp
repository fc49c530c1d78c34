// The contents of the data that runs read, judged before any of them starts.
#pragma once

#include <string>
#include <vector>

#include "harness/launch/placing.hpp"

namespace bnlab {

struct JudgedData {
  std::vector<std::string> refusals;  // everything that is wrong, a text for each task: nothing may start
  std::vector<std::string> remarks;   // plain facts
  std::vector<std::vector<std::string>> facts;  // for each run's record, about its data
};

// Reads all files of the tasks of these runs whose contents have not been judged before. Answers are kept in
// RESULTS/.data_checks by the fingerprint of the data (store/inputs.hpp) and what ids mean. `only_quick`:
// data of more than 16 MB are not read, and a remark says so.
JudgedData judge_data(const std::vector<const PlacedRun*>& runs, const LaunchRequest& request,
                      bool only_quick);

}  // namespace bnlab
