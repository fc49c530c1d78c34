// What is known of a strategy before it is made: what its registration says for `bnlab explain` and the table
// of strategies/README.md, and what follows from its options. Needs no LibTorch.
#pragma once

#include <string>

#include "harness/components/registry.hpp"

namespace bnlab {

struct StrategyFacts {
  static constexpr const char* kFamily = "strategy";

  std::string name;
  std::string summary = {};    // one line: what it computes
  std::string source = {};     // paper or discussion that it follows; may be empty
  std::string formula = {};    // lines, as a reader would implement it
  std::string exchanges = {};  // per site and training step, in words: "none", "1 forward, 1 backward"
  std::string use = {};        // when to use it
  std::string limits = {};     // what it cannot do

  // Whether evaluation has running statistics to use.
  FactOfOptions<bool> has_running_statistics = [](const Json&) { return false; };

  // Whether convolutions are its own, so that no other strategy can standardise their weights.
  FactOfOptions<bool> makes_convolutions = [](const Json&) { return false; };

  template <Described Options>
  void ask() {
    if constexpr (requires { &Options::has_running_statistics; })
      has_running_statistics = asked<Options>(&Options::has_running_statistics);
    if constexpr (requires { &Options::makes_convolutions; })
      makes_convolutions = asked<Options>(&Options::makes_convolutions);
  }
};

}  // namespace bnlab
