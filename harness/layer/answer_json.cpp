#include "harness/layer/answer_json.hpp"

#include "harness/layer/tensor_json.hpp"

namespace bnlab {
namespace {

void put(Json& step, const char* key, const at::Tensor& values) {
  if (values.defined()) {
    step[key] = vector_json(values);
  }
}

Json step_json(const LayerStepAnswer& answer) {
  Json step{{"towers", Json::array()}};
  for (size_t t = 0; t < answer.outputs.size(); ++t) {
    Json tower{{"output", tensor_json(answer.outputs[t])}};
    if (!answer.input_gradients.empty()) {
      tower["grad_input"] = tensor_json(answer.input_gradients[t]);
    }
    step["towers"].push_back(tower);
  }
  if (answer.v_gradient.defined()) {
    step["grad_v"] = tensor_json(answer.v_gradient);
  }
  put(step, "grad_gain", answer.gain_gradient);
  put(step, "grad_weight", answer.weight_gradient);
  put(step, "grad_bias", answer.bias_gradient);
  put(step, "gain", answer.gain);
  put(step, "bias", answer.bias);
  put(step, "running_mean", answer.running_mean);
  put(step, "running_var", answer.running_var);
  if (!answer.permutation.empty()) {
    step["permutation"] = answer.permutation;
  }
  step["collectives"] = Json::array();
  for (const Collective& collective : answer.collectives) {
    step["collectives"].push_back({{"op", collective.op},
                                   {"elements", collective.elements},
                                   {"purpose", kPurposeNames[static_cast<size_t>(collective.purpose)]}});
  }
  return step;
}

}  // namespace

Json answer_json(const LayerAnswer& answer) {
  Json steps = Json::array();
  for (const LayerStepAnswer& step : answer.steps) {
    steps.push_back(step_json(step));
  }
  return {{"steps", steps}};
}

}  // namespace bnlab
