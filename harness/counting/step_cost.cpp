#include "harness/counting/step_cost.hpp"

#include <torch/types.h>

#include "harness/built_network.hpp"
#include "harness/communicator/counting_communicator.hpp"
#include "harness/counting/kernel_counter.hpp"
#include "harness/models/model.hpp"

namespace bnlab {
namespace {

constexpr int64_t kSteps = 1000;  // of the run that the two steps begin, for schedules given as fractions

}  // namespace

StepCost count_step(const StepCase& step_case) {
  const Towers towers(std::vector<int64_t>(static_cast<size_t>(step_case.towers), step_case.batch_per_tower),
                      step_case.ranks, 0);
  Ledger ledger;
  CountingCommunicator communicator(step_case.ranks, ledger);
  const Strategy::Context context{.statistics = communicator,
                                  .host = communicator,
                                  .steps = kSteps,
                                  .samples_per_tower = towers.all_samples()};
  BuiltNetwork built(
      step_case.strategy, context,
      builder_of(step_case.model, {.image_sizes = {{step_case.height, step_case.width}}}, step_case.classes));

  StepCost cost;
  cost.notes = built.strategy().notes();
  cost.norm_sites = static_cast<int64_t>(built.sites().size());
  for (const at::Tensor& parameter : built.network().parameters()) {
    cost.gradient_bytes += static_cast<int64_t>(parameter.nbytes());
  }
  const int64_t values = towers.local_samples() * 3 * step_case.height * step_case.width;
  Batch batch{
      at::arange(values, at::kFloat).sin().view({-1, 3, step_case.height, step_case.width}), {}, towers};
  for (int64_t step = 0; step < 2; ++step) {  // what only a first step does is not the price of a step
    ledger.clear();
    batch.index = static_cast<uint64_t>(step);
    const Outputs outputs = built.forward(batch, {step, kSteps}, Mode::train);
    at::Tensor loss = outputs.logits.square().mean();
    if (outputs.auxiliary.defined()) {
      loss = loss + outputs.auxiliary.square().mean();
    }
    loss.backward();
  }
  for (size_t p = 0; p < kPurposeNames.size(); ++p) {
    const Traffic& traffic = ledger.of(static_cast<Purpose>(p));
    if (traffic.collectives > 0) {
      cost.exchanges.push_back({kPurposeNames[p], traffic.collectives, traffic.bytes});
    }
  }
  if (!built.sites().empty()) {
    const auto untrained = Registered<Strategy>::create(step_case.strategy, context);
    const SiteKernels kernels = count_site_kernels(*untrained, built.sites().front(), towers);
    cost.forward_kernels = kernels.forward;
    cost.backward_kernels = kernels.backward;
  }
  return cost;
}

}  // namespace bnlab
