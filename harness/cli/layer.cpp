// bnlab layer: one strategy at one site on given tensors, for people who check a formula and for tests in
// other languages.
#include "harness/layer/layer_program.hpp"

#include <iostream>
#include <memory>

#include "harness/cli/program.hpp"

namespace bnlab {

void add_layer(Program& program) {
  CLI::App* command =
      add_command(program, "layer", "One strategy's layer on given tensors, as JSON",
                  "  bnlab layer case.json\n"
                  "  bnlab layer cases/*.json --ranks 2\n"
                  "  echo '{\"strategy\": \"NAME\", \"steps\": [{\"towers\": [{\"input\": {\"shape\": "
                  "[3, 1], \"data\": [1, 3, 8]}}]}]}' | bnlab layer -");
  const auto request = std::make_shared<LayerRequest>();
  command
      ->add_option(
          "CASE", request->files,
          "Files with one case each, a JSON object of strategy and steps, and as wanted of dtype, "
          "memory_format, seed, weight, bias, running_mean, running_var and conv; - is standard input")
      ->required();
  command->add_option("--ranks", request->ranks, "Ranks that share the towers, threads of this process")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--device", request->device, "cpu or cuda")
      ->type_name("DEVICE")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->callback([&program, request] {
    program.action = [request] {
      return answer_layer_cases(*request, std::cout, std::cerr) ? exit_code::kOk : exit_code::kUsage;
    };
  });
}

}  // namespace bnlab
