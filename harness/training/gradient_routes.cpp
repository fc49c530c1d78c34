#include "harness/training/gradient_routes.hpp"

#include <torch/types.h>

#include <utility>

#include "harness/communicator/gradient_sync.hpp"

namespace bnlab {
namespace {

// Gradients stay the rank's own; now and then all that training has changed is replaced by its mean over the
// ranks.
class WeightAveraging : public GradientSync {
 public:
  WeightAveraging(int64_t every, Trained trained, Communicator& gradients)
      : every_(every), trained_(std::move(trained)), gradients_(gradients) {
    averaged_ = trained_.parameters;
    averaged_.insert(averaged_.end(), trained_.optimizer_state.begin(), trained_.optimizer_state.end());
  }
  void before_forward() override {}
  void before_backward() override {}
  void after_backward() override {}
  void exchange() override {}
  void after_step(int64_t steps_done) override {
    drop_gradients(trained_.parameters);
    if (steps_done % every_ == 0 || steps_done == trained_.steps) average();
  }

 private:
  void average() {
    exchange_flat(averaged_, [this](at::Tensor& flat) {
      gradients_.all_reduce(flat, Purpose::gradients);
      flat.div_(gradients_.size());
    });
    if (trained_.statistics != nullptr) trained_.statistics->average_replicas();
  }

  int64_t every_;
  Trained trained_;
  std::vector<at::Tensor> averaged_;
  Communicator& gradients_;
};

FlatExchange over_rank0(Communicator& gradients) {
  return [&gradients](at::Tensor& flat) {
    gradients.reduce(flat, 0, Purpose::gradients);
    flat.div_(gradients.size());  // matters on rank 0 alone, whose values all ranks then get
    gradients.broadcast(flat, 0, Purpose::gradients);
  };
}

FlatExchange over_host(Communicator& host) {
  return [&host](at::Tensor& flat) {
    at::Tensor on_host = flat.cpu();
    host.all_reduce(on_host, Purpose::gradients);
    flat.copy_(on_host.div_(host.size()));
  };
}

}  // namespace

std::unique_ptr<GradientSync> make_gradient_sync(const RunSpec& spec, Trained trained, World& world) {
  if (spec.average_weights_every > 0) {
    return std::make_unique<WeightAveraging>(spec.average_weights_every, std::move(trained),
                                             world.gradients());
  }
  switch (spec.gradient_route) {
    case GradientRoute::rank0:
      return make_flat_sync(std::move(trained.parameters), over_rank0(world.gradients()), 1,
                            trained.replayed);
    case GradientRoute::host:
      return make_flat_sync(std::move(trained.parameters), over_host(world.host()));
    case GradientRoute::reducer:
      break;
  }
  if (trained.replayed && world.records_gradients())
    return make_bucket_sync(trained.parameters, world.gradients());
  return world.gradient_sync(trained.parameters, trained.replayed);
}

}  // namespace bnlab
