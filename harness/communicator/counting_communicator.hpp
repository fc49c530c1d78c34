// Rank 0 of a world without other ranks. Every call is booked in the ledger and answered with a tensor of the
// right shape, as if the others had sent the same as this rank (in all_to_all, as if they had sent zeros). It
// counts what a training step would exchange without starting a process.
#pragma once

#include <torch/types.h>

#include "harness/communicator/communicator.hpp"
#include "harness/support/kernel_count.hpp"

namespace bnlab {

class CountingCommunicator : public Communicator {
 public:
  CountingCommunicator(int size, Ledger& ledger) : Communicator("counting", ledger), size_(size) {}

  int rank() const override { return 0; }
  int size() const override { return size_; }

 private:
  void do_all_gather(const at::Tensor& t, at::Tensor& gathered) override {
    const Uncounted collective;
    gathered.copy_(t.expand_as(gathered));
  }
  void do_all_reduce(at::Tensor& t) override {
    const Uncounted collective;
    t.mul_(size_);
  }
  std::unique_ptr<Pending> do_all_reduce_async(at::Tensor& t) override {
    do_all_reduce(t);
    return std::make_unique<Pending>();
  }
  void do_broadcast(at::Tensor& /*t*/, int /*root*/) override {}
  void do_gather(const at::Tensor& t, at::Tensor& gathered, int root) override {
    const Uncounted collective;
    if (root == 0) gathered.copy_(t.expand_as(gathered));
  }
  void do_reduce(at::Tensor& t, int root) override {
    if (root == 0) do_all_reduce(t);
  }
  void do_all_to_all(const at::Tensor& /*t*/, const std::vector<int64_t>& /*send*/,
                     const std::vector<int64_t>& /*receive*/, at::Tensor& received) override {
    const Uncounted collective;
    received.zero_();
  }
  void do_barrier() override {}

  int size_;
};

}  // namespace bnlab
