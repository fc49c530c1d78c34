// `bnlab layer`: files of cases in, lines of answers out. Needs no LibTorch to include.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace bnlab {

struct LayerRequest {
  std::vector<std::string> files;  // each holds one case; "-" is standard input
  int ranks = 1;                   // threads of this process; they must divide the towers of every case
  std::string device = "cpu";      // "cpu", "cuda"
};

// Writes one JSON line per case to `out`, in order,
//   {"steps": [{"towers": [{"output": TENSOR, "grad_input": TENSOR}, ...], "grad_weight": [...], ...}, ...]}
// and for each case that cannot be done one line to `err`:
// the file, the key at fault and what is wrong with it. Returns whether all were done. Throws Error
// (environment) where the device is lacking.
bool answer_layer_cases(const LayerRequest& request, std::ostream& out, std::ostream& err);

}  // namespace bnlab
