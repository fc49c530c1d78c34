#include "harness/layer/layer_case.hpp"

#include "harness/communicator/thread_ranks.hpp"
#include "harness/components/parameters.hpp"
#include "harness/error.hpp"
#include "harness/layer/layer_rank.hpp"
#include "harness/layer/tensor_json.hpp"
#include "harness/tf32.hpp"

namespace bnlab {
namespace {

// Towers that share a rank are one tensor there. Checked for all ranks at once, so that none is left waiting.
void check_placement(const LayerCase& c, int ranks, std::string& key) {
  for (size_t s = 0; s < c.steps.size(); ++s) {
    const std::vector<at::Tensor>& inputs = c.steps[s].inputs;
    key = "steps[" + std::to_string(s) + "].towers";
    if (inputs.empty() || inputs.size() % static_cast<size_t>(ranks) != 0) {
      throw Error(Error::Kind::refused, "expected a number of towers that " + std::to_string(ranks) +
                                            " ranks divide, got " + std::to_string(inputs.size()));
    }
    const size_t per_rank = inputs.size() / static_cast<size_t>(ranks);
    for (size_t t = 0; t < inputs.size(); ++t) {
      const size_t first = t - t % per_rank;
      if (inputs[t].sizes().slice(1) != inputs[first].sizes().slice(1)) {
        key += "[" + std::to_string(t) + "].input.shape";
        throw Error(Error::Kind::refused, "expected all but the number of samples as in tower " +
                                              std::to_string(first) + " of the same rank, " +
                                              shape_text(inputs[first].sizes()) + ", got " +
                                              shape_text(inputs[t].sizes()));
      }
    }
  }
}

void append(std::vector<at::Tensor>& all, const std::vector<at::Tensor>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

void add(at::Tensor& sum, const at::Tensor& more) {
  sum = sum.defined() ? sum + more : more;
}

// What the ranks answered as one: towers in order, gradients of parameters summed in rank order.
LayerAnswer joined(const std::vector<LayerAnswer>& ranks) {
  LayerAnswer all = ranks.front();
  for (size_t r = 1; r < ranks.size(); ++r) {
    for (size_t s = 0; s < all.steps.size(); ++s) {
      LayerStepAnswer& step = all.steps[s];
      const LayerStepAnswer& more = ranks[r].steps[s];
      append(step.outputs, more.outputs);
      append(step.input_gradients, more.input_gradients);
      for (at::Tensor LayerStepAnswer::*sum :
           {&LayerStepAnswer::weight_gradient, &LayerStepAnswer::bias_gradient, &LayerStepAnswer::v_gradient,
            &LayerStepAnswer::gain_gradient}) {
        if ((more.*sum).defined()) {
          add(step.*sum, more.*sum);
        }
      }
    }
    all.nonfinite_channels += ranks[r].nonfinite_channels;
  }
  return all;
}

}  // namespace

LayerAnswer apply_layer(const LayerCase& layer_case, int ranks, at::DeviceType device, std::string* key) {
  ThreadRanks threads(ranks, device);
  return apply_layer(layer_case, threads, key);
}

LayerAnswer apply_layer(const LayerCase& layer_case, ThreadRanks& ranks, std::string* key) {
  allow_tf32(false);
  std::vector<std::string> keys(static_cast<size_t>(ranks.ranks()));
  std::vector<LayerAnswer> answers(keys.size());
  try {
    check_placement(layer_case, ranks.ranks(), keys[0]);
    ranks.run([&](World& world) {
      const auto r = static_cast<size_t>(world.rank());
      LayerRank rank(layer_case, world, keys[r]);
      for (size_t s = 0; s < layer_case.steps.size(); ++s) {
        answers[r].steps.push_back(rank.step(s));
      }
      answers[r].nonfinite_channels = rank.nonfinite_channels();
    });
  } catch (...) {
    if (key != nullptr) {
      *key = keys[0];
    }
    throw;
  }
  return joined(answers);
}

Json resolved_strategy(const Json& strategy) {
  Problems problems;
  const Json all = resolve({component_key("strategy")}, {{"strategy", strategy}}, "", problems);
  if (!problems.empty()) {
    throw Error(Error::Kind::spec, problems.found().front().first + ": " + problems.found().front().second);
  }
  return all.at("strategy");
}

}  // namespace bnlab
