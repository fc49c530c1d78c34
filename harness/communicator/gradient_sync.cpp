#include "harness/communicator/gradient_sync.hpp"

#include <torch/types.h>

#include <map>
#include <utility>

namespace bnlab {
namespace {

class FlatSync : public GradientSync {
 public:
  FlatSync(std::vector<at::Tensor> parameters, FlatExchange exchange)
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
  void after_step(int64_t /*steps_done*/) override { drop_gradients(parameters_); }

 private:
  std::vector<at::Tensor> parameters_;
  FlatExchange exchange_;
};

}  // namespace

void exchange_flat(const std::vector<at::Tensor>& tensors, const FlatExchange& exchange) {
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

std::unique_ptr<GradientSync> make_flat_sync(std::vector<at::Tensor> parameters, FlatExchange exchange) {
  return std::make_unique<FlatSync>(std::move(parameters), std::move(exchange));
}

void drop_gradients(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) {
    parameter.mutable_grad() = at::Tensor();
  }
}

}  // namespace bnlab
