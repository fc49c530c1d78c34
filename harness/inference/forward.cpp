#include "harness/inference/forward.hpp"

#include <torch/types.h>

#include <array>
#include <map>
#include <vector>

#include "harness/built_network.hpp"
#include "harness/communicator/thread_ranks.hpp"
#include "harness/components/registry.hpp"
#include "harness/models/model.hpp"
#include "harness/support/error.hpp"
#include "harness/training/safetensors.hpp"
#include "harness/training/weights.hpp"

namespace bnlab {
namespace {

constexpr const char* kImages = "images";
constexpr const char* kGradLogits = "grad_logits";
constexpr const char* kGradAuxiliary = "grad_auxiliary";

struct Inputs {
  at::Tensor images, grad_logits, grad_auxiliary;  // undefined where not given
};

[[noreturn]] void refuse(const std::string& file, const std::string& what) {
  throw Error(Error::Kind::data, file + ": " + what);
}

Inputs read_inputs(const ForwardRequest& request, at::Device device) {
  Inputs inputs;
  const std::map<std::string, at::Tensor*> known = {{kImages, &inputs.images},
                                                    {kGradLogits, &inputs.grad_logits},
                                                    {kGradAuxiliary, &inputs.grad_auxiliary}};
  for (const NamedTensor& given : read_safetensors(request.inputs)) {
    const auto found = known.find(given.name);
    if (found == known.end())
      refuse(request.inputs, given.name + ": expected images, grad_logits or grad_auxiliary");
    *found->second = given.tensor.to(device);
  }
  const at::Tensor& images = inputs.images;
  if (!images.defined() || images.dim() != 4 || images.size(1) != 3 || images.numel() == 0 ||
      (images.scalar_type() != at::kFloat && images.scalar_type() != at::kDouble)) {
    refuse(request.inputs, "expected images [n, 3, height, width] of float32 or float64");
  }
  if (images.size(0) % request.rows_per_sample != 0) {
    refuse(request.inputs, "expected a number of images that " + std::to_string(request.rows_per_sample) +
                               " rows per sample divide, got " + std::to_string(images.size(0)));
  }
  return inputs;
}

// The scalar of which the given tensors are the gradients with respect to the outputs.
at::Tensor loss_of(const ForwardRequest& request, const Outputs& outputs, const Inputs& inputs) {
  const auto term = [&](const at::Tensor& output, const at::Tensor& gradient, const char* name) {
    if (!gradient.defined()) return at::zeros({}, inputs.images.options());
    if (!output.defined() || output.sizes() != gradient.sizes()) {
      refuse(request.inputs,
             std::string(name) + ": expected the shape of what the network answers, " +
                 (output.defined() ? shown(Json(output.sizes().vec())) : std::string("which has none")) +
                 ", got " + shown(Json(gradient.sizes().vec())));
    }
    return (output * gradient).sum();
  };
  return term(outputs.logits, inputs.grad_logits, kGradLogits) +
         term(outputs.auxiliary, inputs.grad_auxiliary, kGradAuxiliary);
}

std::string answer(const ForwardRequest& request, World& world) {
  Inputs inputs = read_inputs(request, world.device());
  const Towers towers({inputs.images.size(0) / request.rows_per_sample}, 1, 0);
  const std::array<int64_t, 2> image_size{inputs.images.size(2), inputs.images.size(3)};
  const auto parameters = at::TensorOptions().dtype(inputs.images.scalar_type()).device(world.device());
  const bool trains = request.mode == ForwardMode::train;
  BuiltNetwork built(
      request.strategy,
      {.statistics = world.statistics(),
       .host = world.host(),
       .dtype = inputs.images.scalar_type(),
       .device = world.device(),
       .steps = 1,  // the pass is the first step of a run, before any that a schedule of fractions changes
       .fresh_weights = false,
       .samples_per_tower = trains ? towers.all_samples() : std::vector<int64_t>{}},
      builder_of(request.model, {.image_sizes = {image_size}, .parameters = parameters}, request.classes));
  const std::string note = load_weights({.file = request.weights}, built.network());
  built.start_statistics();

  const Batch batch{
      .images = inputs.images, .labels = {}, .towers = towers, .rows_per_sample = request.rows_per_sample};
  const bool wants_gradients = inputs.grad_logits.defined() || inputs.grad_auxiliary.defined();
  inputs.images.requires_grad_(wants_gradients);
  const Outputs outputs = built.forward(batch, {}, trains ? Mode::train : Mode::evaluate_saved);
  std::vector<NamedTensor> answers = {{"logits", outputs.logits}};
  if (outputs.auxiliary.defined()) answers.push_back({"auxiliary", outputs.auxiliary});
  if (wants_gradients) {
    loss_of(request, outputs, inputs).backward();
    answers.push_back({std::string("grad/") + kImages, inputs.images.grad()});
    for (const auto& [name, parameter] : built.network().named_parameters().pairs()) {
      const at::Tensor& gradient = parameter.grad();
      answers.push_back({"grad/" + name, gradient.defined() ? gradient : at::zeros_like(parameter)});
    }
  }
  if (RunningStatistics* statistics = built.statistics(); trains && statistics != nullptr) {
    const at::NoGradGuard no_grad;
    Calibration calibration(1, [&](int64_t) { built.forward(batch, {}, Mode::calibrate); });
    statistics->load_into_buffers({}, calibration);
    for (const auto& [name, buffer] : built.network().named_buffers().pairs())
      answers.push_back({"after/" + name, buffer});
  }
  write_safetensors(request.out, answers);
  return note;
}

}  // namespace

std::string run_forward_pass(const ForwardRequest& request) {
  std::string note;
  on_thread_ranks(1, request.device == "cuda" ? at::kCUDA : at::kCPU,
                  [&](World& world) { note = answer(request, world); });
  return note;
}

}  // namespace bnlab
