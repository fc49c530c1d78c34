#include "harness/training/gradient_routes.hpp"

#include <torch/types.h>

#include <functional>
#include <map>
#include <utility>

namespace bnlab {
namespace {

// What the ranks do with one flat tensor, in place; it is then the same on all of them.
using Exchange = std::function<void(at::Tensor& flat)>;

// Packs the tensors of each dtype into one flat tensor, exchanges it and unpacks it where it came from.
void exchange_flat(const std::vector<at::Tensor>& tensors, const Exchange& exchange) {
  const at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
  for (const at::Tensor& tensor : tensors) {
    by_dtype[tensor.scalar_type()].push_back(tensor);
  }
  for (auto& [dtype, group] : by_dtype) {
    std::vector<at::Tensor> pieces;
    for (const at::Tensor& tensor : group) {
      pieces.push_back(tensor.reshape(-1));
    }
    at::Tensor flat = at::cat(pieces);
    exchange(flat);
    int64_t begin = 0;
    for (at::Tensor& tensor : group) {
      tensor.copy_(flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
      begin += tensor.numel();
    }
  }
}

void drop_gradients(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    parameter.mutable_grad() = at::Tensor();
  }
}

// All gradients in one exchange, once backward has made them.
class FlatRoute : public GradientSync {
 public:
  FlatRoute(std::vector<at::Tensor> parameters, Exchange exchange)
      : parameters_(std::move(parameters)), exchange_(std::move(exchange)) {}
  void before_forward() override {}
  void before_backward() override {}
  void after_backward() override {
    std::vector<at::Tensor> gradients;
    for (const at::Tensor& parameter : parameters_) {
      gradients.push_back(parameter.grad());
    }
    exchange_flat(gradients, exchange_);
  }
  void after_step() override { drop_gradients(parameters_); }

 private:
  std::vector<at::Tensor> parameters_;
  Exchange exchange_;
};

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
  void after_step() override {
    drop_gradients(trained_.parameters);
    ++steps_done_;
    if (steps_done_ % every_ == 0 || steps_done_ == trained_.steps) {
      average();
    }
  }

 private:
  void average() {
    exchange_flat(averaged_, [this](at::Tensor& flat) {
      gradients_.all_reduce(flat, Purpose::gradients);
      flat.div_(gradients_.size());
    });
    if (trained_.statistics != nullptr) {
      trained_.statistics->average_replicas();
    }
  }

  int64_t every_;
  Trained trained_;
  std::vector<at::Tensor> averaged_;
  Communicator& gradients_;
  int64_t steps_done_ = 0;
};

Exchange over_rank0(Communicator& gradients) {
  return [&gradients](at::Tensor& flat) {
    gradients.reduce(flat, 0, Purpose::gradients);
    flat.div_(gradients.size());  // matters on rank 0 alone, whose values all ranks then get
    gradients.broadcast(flat, 0, Purpose::gradients);
  };
}

Exchange over_host(Communicator& host) {
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
      return std::make_unique<FlatRoute>(std::move(trained.parameters), over_rank0(world.gradients()));
    case GradientRoute::host:
      return std::make_unique<FlatRoute>(std::move(trained.parameters), over_host(world.host()));
    case GradientRoute::reducer:
      break;
  }
  return world.reducer(trained.parameters);
}

}  // namespace bnlab
