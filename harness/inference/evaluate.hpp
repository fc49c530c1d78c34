// A weights file evaluated under several populations, as its run evaluated them. Needs no LibTorch to
// include.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/json.hpp"

namespace bnlab {

struct EvaluateJob {
  RunSpec spec;         // of the run that left the weights
  std::string weights;  // weights.safetensors
  std::string pairs;    // populations.safetensors of the same run; empty if there is none
  std::vector<std::string> populations;
  std::string device = "cpu";  // or "cuda"
  std::string data_dir;
  int ranks = 1;    // threads of this process; more than one change nothing but the time it takes
  int threads = 1;  // intra-op threads of each
};

// {"saved": {metrics}, ...}: what the run would record at its end, in the order of `populations`; of a
// strategy without running statistics only "saved". Population `precise` is recomputed from the saved pairs
// of the file, which matters to a strategy whose training depends on its running statistics. Throws Error:
// data for a file that cannot be used or holds no such pair, refused where weights and spec, or ranks and
// towers, do not fit.
Json evaluate_weights(const EvaluateJob& job);

}  // namespace bnlab
