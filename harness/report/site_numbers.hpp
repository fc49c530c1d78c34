// What records tell of each norm site (results/README.md, `sites`), over the seeds of a cell.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/report/cell_records.hpp"

namespace bnlab {

struct SiteNumbers {
  std::string name;
  std::map<std::string, SeedValues> numbers;  // "saved_mean_error", "saved_variance_error", "between_sets"
};

// In the order of the network; none where no record tells more than the sites' names.
std::vector<SiteNumbers> site_numbers(const std::vector<const Record*>& records);

}  // namespace bnlab
