// bnlab forward: what a network answers for given images, with the weights of a file.
#include "harness/inference/forward.hpp"

#include <filesystem>
#include <iostream>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/error.hpp"
#include "harness/store/run_folder.hpp"

namespace bnlab {
namespace {

struct ForwardCommand {
  ForwardRequest request;  // but for the components
  std::string model, strategy;
  std::string mode = name_of(ForwardRequest{}.mode);
};

int forward(const ForwardCommand& command) {
  ForwardRequest request = command.request;
  request.model = resolved_component("forward", "model", command.model);
  request.strategy = resolved_component("forward", "strategy", command.strategy);
  request.mode = choice_of<ForwardMode>(command.mode);
  for (const std::string& file : {request.weights, request.inputs}) {
    if (std::filesystem::is_directory(file)) {
      throw Error(Error::Kind::usage, file + ": is a folder; expected a safetensors file, such as the " +
                                          std::string(kWeightsFile) + " in the folder of a run");
    }
    if (!std::filesystem::is_regular_file(file)) throw Error(Error::Kind::usage, file + ": no such file");
  }
  std::cerr << as_usage([&] { return run_forward_pass(request); }) << "\n";
  return exit_code::kOk;
}

}  // namespace

void add_forward(Program& program) {
  auto [command, given] =
      add_command(program, "forward", "Run a network with the weights of a file on given images",
                  "  bnlab forward weights.safetensors --model unet --strategy sync --classes 5 \\\n"
                  "      --images images.safetensors --out answer.safetensors\n"
                  "  bnlab forward WEIGHTS --model '{\"name\": \"fcn\", \"dropout\": 0}' \\\n"
                  "      --strategy sync --classes 21 --images FILE --out FILE --mode train",
                  forward);
  command.add_option("WEIGHTS", given.request.weights, "Weights, a safetensors file")->required();
  command.add_option("--model", given.model, "A model's name, or a JSON object with parameters too")
      ->type_name("MODEL")
      ->required();
  command.add_option("--strategy", given.strategy, "A strategy's name, or a JSON object with parameters too")
      ->type_name("STRATEGY")
      ->required();
  command.add_option("--classes", given.request.classes, "Classes that the network tells apart")
      ->required()
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  command
      .add_option("--images", given.request.inputs,
                  "A safetensors file: images [n, 3, height, width] of float32 or float64, and for gradients "
                  "grad_logits, grad_auxiliary, those of a loss with respect to the outputs")
      ->required()
      ->type_name("FILE");
  command
      .add_option(
          "--out", given.request.out,
          "Where the answer goes, a safetensors file: logits, auxiliary, grad/NAME, and after/NAME, the "
          "running statistics after training")
      ->required()
      ->type_name("FILE");
  command
      .add_option("--mode", given.mode,
                  "Normalise by the moments of the images, train, or by running statistics, evaluate")
      ->type_name("MODE")
      ->check(one_of(split_names(names(ForwardMode{}))))
      ->capture_default_str();
  command
      .add_option("--rows-per-sample", given.request.rows_per_sample,
                  "Images that make up a sample, such as the frames of a clip")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  add_device_option(command, given.request.device);
}

}  // namespace bnlab
