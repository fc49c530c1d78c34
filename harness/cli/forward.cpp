// bnlab forward: what a network answers for given images, with the weights of a file.
#include "harness/inference/forward.hpp"

#include <filesystem>
#include <iostream>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

constexpr double kMost = 1e6;  // classes, or images of a sample

struct ForwardCommand {
  ForwardRequest request;  // but for the components
  std::string model, strategy;

  void describe(Arguments& option) {
    option("WEIGHTS", request.weights, "Weights, a safetensors file");
    option("--model MODEL", model, "A model's name, or a JSON object with parameters too").needed();
    option("--strategy STRATEGY", strategy, "A strategy's name, or a JSON object with parameters too")
        .needed();
    option("--classes N", request.classes, "Classes that the network tells apart").from(1, kMost).needed();
    option("--images FILE", request.inputs,
           "A safetensors file: images [n, 3, height, width] of float32 or float64, and for gradients "
           "grad_logits, grad_auxiliary, those of a loss with respect to the outputs")
        .needed();
    option("--out FILE", request.out,
           "Where the answer goes, a safetensors file: logits, auxiliary, grad/NAME, and after/NAME, the "
           "running statistics after training")
        .needed();
    option("--mode MODE", request.mode,
           "Normalise by the moments of the images, train, or by running statistics, evaluate");
    option("--rows-per-sample N", request.rows_per_sample,
           "Images that make up a sample, such as the frames of a clip")
        .from(1, kMost);
    describe_device(option, request.device);
  }
};

int forward(const ForwardCommand& command) {
  ForwardRequest request = command.request;
  request.model = resolved_component("forward", "model", command.model);
  request.strategy = resolved_component("forward", "strategy", command.strategy);
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

const Command forward_command(
    "forward", {Heading::trained_networks, 4}, "Run a network with the weights of a file on given images",
    "  bnlab forward weights.safetensors --model unet --strategy sync --classes 5 \\\n"
    "      --images images.safetensors --out answer.safetensors\n"
    "  bnlab forward WEIGHTS --model '{\"name\": \"fcn\", \"dropout\": 0}' \\\n"
    "      --strategy sync --classes 21 --images FILE --out FILE --mode train",
    forward);

}  // namespace
}  // namespace bnlab
