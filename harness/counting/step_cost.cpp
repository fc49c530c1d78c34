#include "harness/counting/step_cost.hpp"

#include <torch/types.h>

#include "harness/communicator/counting_communicator.hpp"
#include "harness/components/registry.hpp"
#include "harness/counting/kernel_counter.hpp"
#include "harness/models/model.hpp"
#include "harness/strategy.hpp"
#include "harness/training/subject.hpp"

namespace bnlab {
namespace {

constexpr int64_t kSteps = 1000;  // of the run that the two steps begin, for schedules given as fractions

}  // namespace

StepCost count_step(const StepCase& step_case) {
  const Towers towers(std::vector<int64_t>(static_cast<size_t>(step_case.towers), step_case.batch_per_tower),
                      step_case.ranks, 0);
  Ledger ledger;
  CountingCommunicator communicator(step_case.ranks, ledger);
  const auto new_strategy = [&] {
    return Registered<Strategy>::create(step_case.strategy, {.statistics = communicator,
                                                             .host = communicator,
                                                             .steps = kSteps,
                                                             .samples_per_tower = towers.all_samples()});
  };
  const auto strategy = new_strategy();
  const auto model = Registered<Model>::create(step_case.model, {{{step_case.height, step_case.width}}});
  ListingMaker layers(*strategy);
  const auto network = model->build(layers, step_case.classes);

  StepCost cost;
  cost.notes = strategy->notes();
  cost.norm_sites = static_cast<int64_t>(layers.sites().size());
  for (const at::Tensor& parameter : network->parameters()) {
    cost.gradient_bytes += static_cast<int64_t>(parameter.nbytes());
  }
  const int64_t values = towers.local_samples() * 3 * step_case.height * step_case.width;
  Batch batch{
      at::arange(values, at::kFloat).sin().view({-1, 3, step_case.height, step_case.width}), {}, towers};
  for (int64_t step = 0; step < 2; ++step) {  // what only a first step does is not the price of a step
    ledger.clear();
    batch.index = static_cast<uint64_t>(step);
    const Outputs outputs =
        strategy->forward(*network, batch.images, batch.pass({step, kSteps}, Mode::train));
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
  if (!layers.sites().empty()) {
    const SiteKernels kernels = count_site_kernels(*new_strategy(), layers.sites().front(), towers);
    cost.forward_kernels = kernels.forward;
    cost.backward_kernels = kernels.backward;
  }
  return cost;
}

}  // namespace bnlab
