// A model's network with the layers of a strategy, on one rank, for tests.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "harness/built_network.hpp"
#include "harness/communicator/counting_communicator.hpp"
#include "harness/models/model.hpp"

namespace bnlab {

// A component with its defaults filled in.
inline Json resolved_component(const std::string& family, const Json& given) {
  Problems problems;
  const Json whole = resolve({component_key(family)}, {{family, given}}, "", problems);
  if (!problems.empty())
    throw std::logic_error(problems.found().front().first + ": " + problems.found().front().second);
  return whole.at(family);
}

class OneRankNetwork {
 public:
  explicit OneRankNetwork(const Json& model, int64_t classes = 5, const Json& strategy = "per_tower",
                          const ImageSizes& image_sizes = {}, at::ScalarType dtype = at::kDouble)
      : built_(resolved_component("strategy", strategy),
               {.statistics = communicator_, .host = communicator_, .seed = 3, .dtype = dtype, .steps = 10},
               builder_of(resolved_component("model", model), {image_sizes, 3, dtype}, classes)) {}

  // One tower with all samples, at a training step.
  Outputs forward(const at::Tensor& images, Mode mode = Mode::train, int64_t step = 0,
                  int64_t rows_per_sample = 1) {
    const Batch batch{images, {}, Towers({images.size(0) / rows_per_sample}, 1, 0), rows_per_sample};
    return built_.forward(batch, {step, 10}, mode, 3);
  }

  int64_t parameters(const std::string& prefix = "") const {
    int64_t count = 0;
    for (const auto& [name, tensor] : network().named_parameters().pairs())
      count += name.rfind(prefix, 0) == 0 ? tensor.numel() : 0;
    return count;
  }

  Network& network() const { return built_.network(); }
  RunningStatistics* statistics() const { return built_.statistics(); }
  const std::vector<NormSite>& sites() const { return built_.sites(); }

 private:
  Ledger ledger_;
  CountingCommunicator communicator_{1, ledger_};
  BuiltNetwork built_;
};

}  // namespace bnlab
