// bnlab layer: one strategy at one site on given tensors, for people who check a formula and for tests in
// other languages.
#include "harness/layer/layer_program.hpp"

#include <iostream>

#include "harness/cli/more/more.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"

namespace bnlab {
namespace {

struct AskedLayer : LayerRequest {
  void describe(Arguments& option) {
    option("CASE", files,
           "Files with one case each, a JSON object of strategy and steps, and as wanted of dtype, "
           "memory_format, activation, seed, weight, bias, threshold, alpha, running_mean, running_var and "
           "conv; - is standard input");
    option("--ranks N", ranks, "Ranks that share the towers, as threads of this process")
        .from(1, kMostAtOnce);
    describe_device(option, device);
  }
};

int layer(const AskedLayer& request) {
  return answer_layer_cases(request, std::cout, std::cerr) ? exit_code::kOk : exit_code::kUsage;
}

const Command layer_command(
    more::named("layer"),
    "  bnlab layer case.json\n"
    "  bnlab layer cases/*.json --ranks 2\n"
    "  echo '{\"strategy\": \"NAME\", \"steps\": [{\"towers\":\n"
    "      [{\"input\": {\"shape\": [3, 1], \"data\": [1, 3, 8]}}]}]}' | bnlab layer -",
    layer);

}  // namespace
}  // namespace bnlab
