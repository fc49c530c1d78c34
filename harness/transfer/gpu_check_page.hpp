// The page of verdicts that scripts/gpu_check.sh leaves for programs, beside records and logs, in its
// archive.
#pragma once

#include <string>
#include <vector>

#include "harness/transfer/packing.hpp"

namespace bnlab {

struct GpuCheckPage {
  struct Row {
    std::string part, verdict, text;
  };
  std::string machine, revision, driver, written;
  bool simulated = false;  // its times mean nothing
  std::vector<Row> rows;
};

// Whether these files are what scripts/gpu_check.sh leaves.
bool holds_gpu_check(const Files& files);

// Throws Error (data), naming `archive`, if the page is damaged.
GpuCheckPage gpu_check_page(const Files& files, const std::string& archive);

// Machine, revision, how many rows of each part have which verdict, and the text of all that are not ok.
std::string gpu_check_text(const GpuCheckPage& page);

}  // namespace bnlab
