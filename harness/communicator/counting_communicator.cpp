#include "harness/communicator/counting_communicator.hpp"

#include <torch/types.h>

#include <numeric>

namespace bnlab {
namespace {

class Counted : public Pending {
 public:
  void wait() override {}
};

}  // namespace

void CountingCommunicator::book(const char* op, const at::Tensor& t, Purpose purpose) {
  ledger_.add(op, purpose, t.numel(), static_cast<int64_t>(t.nbytes()));
}

at::Tensor CountingCommunicator::copies(const at::Tensor& t) const {
  return at::stack(std::vector<at::Tensor>(static_cast<size_t>(size_), t));
}

at::Tensor CountingCommunicator::all_gather(const at::Tensor& t, Purpose purpose) {
  book("all_gather", t, purpose);
  return copies(t);
}

void CountingCommunicator::all_reduce(at::Tensor& t, Purpose purpose) {
  book("all_reduce", t, purpose);
  t.mul_(size_);
}

std::unique_ptr<Pending> CountingCommunicator::all_reduce_async(at::Tensor& t, Purpose purpose) {
  all_reduce(t, purpose);
  return std::make_unique<Counted>();
}

void CountingCommunicator::broadcast(at::Tensor& t, int /*root*/, Purpose purpose) {
  book("broadcast", t, purpose);
}

at::Tensor CountingCommunicator::gather(const at::Tensor& t, int root, Purpose purpose) {
  book("gather", t, purpose);
  return root == 0 ? copies(t) : at::Tensor();
}

void CountingCommunicator::reduce(at::Tensor& t, int root, Purpose purpose) {
  book("reduce", t, purpose);
  if (root == 0) {
    t.mul_(size_);
  }
}

at::Tensor CountingCommunicator::all_to_all(const at::Tensor& t, const std::vector<int64_t>& /*send*/,
                                            const std::vector<int64_t>& receive, Purpose purpose) {
  book("all_to_all", t, purpose);
  std::vector<int64_t> shape = t.sizes().vec();
  shape.front() = std::accumulate(receive.begin(), receive.end(), int64_t{0});
  return at::zeros(shape, t.options());
}

void CountingCommunicator::barrier() {
  ledger_.add("barrier", Purpose::control, 0, 0);
}

}  // namespace bnlab
