// A quantile of measured numbers, as records and probes tell it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace bnlab {

// Of at least one number: linear between the two of the sorted ones that are nearest. The quantile of 0.5 is
// the median.
inline double quantile(std::vector<double> values, double fraction) {
  std::ranges::sort(values);
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(place);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (place - static_cast<double>(low));
}

}  // namespace bnlab
