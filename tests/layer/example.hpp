// The worked example as a document: two towers of three values, one channel.
#pragma once

#include "harness/support/json.hpp"

namespace bnlab {

inline Json example_document(const Json& strategy) {
  const auto column = [](const std::vector<double>& values) {
    return Json{{"shape", {values.size(), 1}}, {"data", values}};
  };
  const Json a{{"input", column({1, 3, 8})}, {"grad_output", column({1, -2, .5})}};
  const Json b{{"input", column({2, 9, 10})}, {"grad_output", column({3, .25, -1})}};
  return {{"strategy", strategy},
          {"weight", {2.0}},
          {"bias", {-1.0}},
          {"steps", Json::array({Json{{"mode", "train"}, {"towers", Json::array({a, b})}}})}};
}

}  // namespace bnlab
