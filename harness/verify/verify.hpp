// Verification: every registered strategy, under every variant of its options that its reference lists, must
// answer as the float64 reference does. Needs no LibTorch to include; `bnlab verify` prints the report.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/support/json.hpp"

namespace bnlab {

class Reference;
class ThreadRanks;

// Where the cases are computed: towers dealt to so many ranks on this device.
struct VerifyPlacement {
  std::string device = "cpu";  // "cpu", "cuda"
  int ranks = 1;
  std::shared_ptr<ThreadRanks> threads = nullptr;  // these ranks; made when they are needed
};

struct VerifyRow {
  std::string strategy;
  Json options;                         // as the variant gives them
  int64_t cases = 0;                    // computed, counted once per placement
  int64_t refused = 0;                  // rightly refused
  std::map<std::string, double> worst;  // per dtype: largest error (comparison.hpp)
  std::string failure;                  // the first case that failed, or "" if none did
  std::string skipped = {};             // why no case could be computed

  bool passed() const { return failure.empty(); }
};

struct VerifyReport {
  std::vector<VerifyPlacement> placements;
  std::vector<VerifyRow> rows;
  std::vector<std::string> notes;  // what could not be done here, and why

  bool passed() const;
};

struct VerifyRequest {
  std::vector<std::string> strategies;  // empty: all that are registered
  int ranks = 1;                        // the largest number of ranks; those that divide the towers are used
  std::string device;                   // "cpu", "cuda", or "": both where there is a GPU
  std::function<void(const std::string& strategy, size_t done, size_t all)> progress;  // may be empty
};

// Throws Error (usage) for an unknown strategy and Error (environment) for a device that is not there.
VerifyReport verify(const VerifyRequest& request);

// One variant: `strategy` is {"name": ..., options}. Without a reference it is skipped.
VerifyRow verify_variant(const Json& strategy, const Reference* reference,
                         std::vector<VerifyPlacement>& placements);

}  // namespace bnlab
