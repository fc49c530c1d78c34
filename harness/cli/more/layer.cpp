// bnlab layer: one strategy at one site on given tensors, for people who check a formula and for tests in
// other languages.
#include "harness/layer/layer_program.hpp"

#include <iostream>

#include "harness/cli/more/more.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"

namespace bnlab {
namespace {

int layer(const LayerRequest& request) {
  return answer_layer_cases(request, std::cout, std::cerr) ? exit_code::kOk : exit_code::kUsage;
}

}  // namespace

void add_layer(Program& program) {
  auto [command, request] =
      add_command(program, more::kLayer,
                  "  bnlab layer case.json\n"
                  "  bnlab layer cases/*.json --ranks 2\n"
                  "  echo '{\"strategy\": \"NAME\", \"steps\": [{\"towers\":\n"
                  "      [{\"input\": {\"shape\": [3, 1], \"data\": [1, 3, 8]}}]}]}' | bnlab layer -",
                  layer);
  command
      .add_option("CASE", request.files,
                  "Files with one case each, a JSON object of strategy and steps, and as wanted of dtype, "
                  "memory_format, activation, seed, weight, bias, threshold, alpha, running_mean, "
                  "running_var and conv; - is standard input")
      ->required();
  add_ranks_option(command, request.ranks, "Ranks that share the towers, as threads of this process");
  add_device_option(command, request.device);
}

}  // namespace bnlab
