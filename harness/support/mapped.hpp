// A range, element by element.
#pragma once

#include <functional>
#include <iterator>
#include <type_traits>
#include <vector>

namespace bnlab {

// What `f` makes of each element, in order; f may name a member: mapped(columns, &Column::title).
template <class Range, class F>
auto mapped(Range&& range, F f) {
  std::vector<std::decay_t<std::invoke_result_t<F&, decltype(*std::begin(range))>>> all;
  for (auto&& each : range) all.push_back(std::invoke(f, each));
  return all;
}

}  // namespace bnlab
