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

}  // namespace

std::unique_ptr<GradientSync> make_rank0_route(std::vector<at::Tensor> parameters, Communicator& gradients) {
  return std::make_unique<FlatRoute>(std::move(parameters), [&gradients](at::Tensor& flat) {
    gradients.reduce(flat, 0, Purpose::gradients);
    flat.div_(gradients.size());  // of use on rank 0 alone, whose values all ranks then have
    gradients.broadcast(flat, 0, Purpose::gradients);
  });
}

std::unique_ptr<GradientSync> make_host_route(std::vector<at::Tensor> parameters, Communicator& host) {
  return std::make_unique<FlatRoute>(std::move(parameters), [&host](at::Tensor& flat) {
    at::Tensor on_host = flat.cpu();
    host.all_reduce(on_host, Purpose::gradients);
    flat.copy_(on_host.div_(host.size()));
  });
}

WeightAveraging::WeightAveraging(std::vector<at::Tensor> parameters, Communicator& gradients)
    : parameters_(std::move(parameters)), gradients_(gradients) {}

void WeightAveraging::after_step() {
  drop_gradients(parameters_);
}

void WeightAveraging::average(const std::vector<at::Tensor>& tensors) {
  exchange_flat(tensors, [this](at::Tensor& flat) {
    gradients_.all_reduce(flat, Purpose::gradients);
    flat.div_(gradients_.size());
  });
}

}  // namespace bnlab
