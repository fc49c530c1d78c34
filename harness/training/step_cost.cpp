#include "harness/training/step_cost.hpp"

#include <torch/types.h>

#include "harness/communicator/counting_communicator.hpp"
#include "harness/components/registry.hpp"
#include "harness/models/model.hpp"
#include "harness/random.hpp"
#include "harness/strategy.hpp"

namespace bnlab {
namespace {

constexpr int64_t kSteps = 1000;  // of the run that the two steps begin, for schedules given as fractions

class CountingMaker : public LayerMaker {
 public:
  explicit CountingMaker(LayerMaker& layers) : layers_(layers) {}
  std::shared_ptr<Layer> norm(const NormSite& site) override {
    ++norm_sites_;
    return layers_.norm(site);
  }
  std::shared_ptr<Layer> conv(const ConvSite& site) override { return layers_.conv(site); }
  int64_t norm_sites() const { return norm_sites_; }

 private:
  LayerMaker& layers_;
  int64_t norm_sites_ = 0;
};

at::Tensor random_images(int64_t samples, int64_t height, int64_t width) {
  at::Tensor images = at::empty({samples, 3, height, width}, at::kFloat);
  Stream stream(0, "images");
  float* values = images.mutable_data_ptr<float>();
  for (int64_t i = 0; i < images.numel(); ++i) {
    values[i] = static_cast<float>(stream.normal());
  }
  return images;
}

}  // namespace

StepCost count_step(const StepCase& step_case) {
  const Towers towers(std::vector<int64_t>(static_cast<size_t>(step_case.towers), step_case.batch_per_tower),
                      step_case.ranks, 0);
  refuse_misfits("strategy", step_case.strategy, {.samples_per_tower = towers.all_samples()});
  Ledger ledger;
  CountingCommunicator communicator(step_case.ranks, ledger);
  const auto strategy = Registered<Strategy>::create(
      step_case.strategy, {.statistics = communicator, .host = communicator, .steps = kSteps, .shadows = {}});
  const auto model = Registered<Model>::create(step_case.model, {});
  model->check_size(step_case.height, step_case.width);
  CountingMaker layers(*strategy);
  const auto network = model->build(layers, step_case.classes);

  StepCost cost;
  cost.norm_sites = layers.norm_sites();
  for (const at::Tensor& parameter : network->parameters()) {
    cost.gradient_bytes += static_cast<int64_t>(parameter.nbytes());
  }
  Batch batch{random_images(towers.local_samples(), step_case.height, step_case.width), {}, towers};
  for (int64_t step = 0; step < 2; ++step) {  // what only a first step does is not the price of a step
    ledger.clear();
    batch.index = static_cast<uint64_t>(step);
    strategy->forward(*network, batch.images, batch.pass({step, kSteps}, Mode::train))
        .square()
        .mean()
        .backward();
  }
  for (size_t p = 0; p < kPurposeNames.size(); ++p) {
    const Traffic& traffic = ledger.of(static_cast<Purpose>(p));
    if (traffic.collectives > 0) {
      cost.exchanges.push_back({kPurposeNames[p], traffic.collectives, traffic.bytes});
    }
  }
  return cost;
}

}  // namespace bnlab
