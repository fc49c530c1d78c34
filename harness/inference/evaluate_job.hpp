// Which trained weights are asked, and where.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"

namespace bnlab {

struct EvaluateJob {
  RunSpec spec;         // the run that left the weights
  std::string weights;  // weights.safetensors
  std::string pairs;    // populations.safetensors of the same run; empty if there is none
  std::vector<std::string> populations;
  std::optional<int64_t> steps = {};  // after which the weights were left; nothing: after all of the spec
  std::string device = "cpu";         // "cpu", "cuda"
  std::string data_dir;
  int ranks = 1;    // threads of this process; more than one change nothing but the time it takes
  int threads = 1;  // intra-op threads of each
};

}  // namespace bnlab
