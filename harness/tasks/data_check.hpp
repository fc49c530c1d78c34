// What a look at the contents of all files of a task found: everything that is wrong, and plain facts.
// Whoever starts runs looks before any rank exists: needs no LibTorch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/support/error.hpp"

namespace bnlab {

struct DataFault {
  std::string kind;     // what faults of one kind have in common: "labels of another size"
  std::string message;  // the file, what was expected, what came, and the cure
};

// All faults of some data: at most twenty of them, those of a kind together, and how many each kind has.
inline std::string text_of_faults(const std::vector<DataFault>& faults) {
  constexpr size_t kShown = 20;
  std::vector<std::string> kinds;  // in the order in which they come
  std::map<std::string, std::vector<const DataFault*>> by_kind;
  for (const DataFault& fault : faults) {
    if (by_kind[fault.kind].empty()) kinds.push_back(fault.kind);
    by_kind[fault.kind].push_back(&fault);
  }
  std::map<std::string, size_t> shown;  // as evenly as the kinds allow
  for (size_t room = std::min(kShown, faults.size()); room > 0;) {
    for (const std::string& kind : kinds) {
      if (room > 0 && shown[kind] < by_kind[kind].size()) {
        ++shown[kind];
        --room;
      }
    }
  }
  std::string text;
  for (size_t k = 0; k < kinds.size(); ++k) {
    const auto& of_kind = by_kind[kinds[k]];
    text += (k == 0 ? "" : "\n") + std::to_string(of_kind.size()) + " of kind \"" + kinds[k] + "\":";
    for (size_t i = 0; i < shown[kinds[k]]; ++i) text += "\n  " + of_kind[i]->message;
    if (shown[kinds[k]] < of_kind.size())
      text += "\n  and " + std::to_string(of_kind.size() - shown[kinds[k]]) + " more";
  }
  return text;
}

// An Error about data that knows its faults. One fault alone is its whole message.
class FaultyData : public Error {
 public:
  explicit FaultyData(std::vector<DataFault> faults)
      : Error(Kind::data, faults.size() == 1 ? faults[0].message
                                             : std::to_string(faults.size()) + " faults in the data:\n" +
                                                   text_of_faults(faults)),
        faults_(std::move(faults)) {}
  FaultyData(std::string kind, std::string message)
      : FaultyData(std::vector{DataFault{std::move(kind), std::move(message)}}) {}

  const std::vector<DataFault>& faults() const { return faults_; }

 private:
  std::vector<DataFault> faults_;
};

struct DataReport {
  std::vector<DataFault> faults;
  std::vector<std::string> facts;  // sentences about what is no fault but worth knowing
  int64_t training_samples = 0;
};

struct DataCheck {
  std::string question;              // what the answer depends on beside the contents of the files
  std::function<DataReport()> look;  // reads all files, on as many threads as there are cores
};

}  // namespace bnlab
