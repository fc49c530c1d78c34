// Rank 0 of a world without other ranks: every call is booked in the ledger and answered with a tensor of the right
// shape, as if the others had said the same as this rank (in all_to_all, as if they had sent zeros). It tells what a
// training step would exchange without starting a process.
#pragma once

#include <torch/types.h>

#include <numeric>

#include "harness/communicator/communicator.hpp"

namespace bnlab {

class CountingCommunicator : public Communicator {
 public:
  CountingCommunicator(int size, Ledger& ledger) : size_(size), ledger_(ledger) {}

  int rank() const override { return 0; }
  int size() const override { return size_; }

  at::Tensor all_gather(const at::Tensor& t, Purpose purpose) override {
    book("all_gather", t, purpose);
    return copies(t);
  }
  void all_reduce(at::Tensor& t, Purpose purpose) override {
    book("all_reduce", t, purpose);
    t.mul_(size_);
  }
  std::unique_ptr<Pending> all_reduce_async(at::Tensor& t, Purpose purpose) override {
    all_reduce(t, purpose);
    return std::make_unique<Pending>();
  }
  void broadcast(at::Tensor& t, int /*root*/, Purpose purpose) override { book("broadcast", t, purpose); }
  at::Tensor gather(const at::Tensor& t, int root, Purpose purpose) override {
    book("gather", t, purpose);
    return root == 0 ? copies(t) : at::Tensor();
  }
  void reduce(at::Tensor& t, int root, Purpose purpose) override {
    book("reduce", t, purpose);
    if (root == 0) {
      t.mul_(size_);
    }
  }
  at::Tensor all_to_all(const at::Tensor& t, const std::vector<int64_t>& /*send*/,
                        const std::vector<int64_t>& receive, Purpose purpose) override {
    book("all_to_all", t, purpose);
    std::vector<int64_t> shape = t.sizes().vec();
    shape.front() = std::accumulate(receive.begin(), receive.end(), int64_t{0});
    return at::zeros(shape, t.options());
  }
  void barrier() override { ledger_.add("barrier", Purpose::control, 0, 0); }

 private:
  void book(const char* op, const at::Tensor& t, Purpose purpose) {
    ledger_.add(op, purpose, t.numel(), static_cast<int64_t>(t.nbytes()));
  }
  at::Tensor copies(const at::Tensor& t) const {  // [size, ...shape of t]
    return at::stack(std::vector<at::Tensor>(static_cast<size_t>(size_), t));
  }

  int size_;
  Ledger& ledger_;
};

}  // namespace bnlab
