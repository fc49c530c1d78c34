// Rank 0 of a world whose other ranks are not there: every call is booked in the ledger and answered with a
// tensor of the right shape, as if the others had said the same as this rank (all_to_all: as if they had
// sent zeros). It tells what a training step would exchange, without starting a process.
#pragma once

#include "harness/communicator/communicator.hpp"

namespace bnlab {

class CountingCommunicator : public Communicator {
 public:
  CountingCommunicator(int size, Ledger& ledger) : size_(size), ledger_(ledger) {}

  int rank() const override { return 0; }
  int size() const override { return size_; }
  at::Tensor all_gather(const at::Tensor& t, Purpose purpose) override;
  void all_reduce(at::Tensor& t, Purpose purpose) override;
  std::unique_ptr<Pending> all_reduce_async(at::Tensor& t, Purpose purpose) override;
  void broadcast(at::Tensor& t, int root, Purpose purpose) override;
  at::Tensor gather(const at::Tensor& t, int root, Purpose purpose) override;
  void reduce(at::Tensor& t, int root, Purpose purpose) override;
  at::Tensor all_to_all(const at::Tensor& t, const std::vector<int64_t>& send,
                        const std::vector<int64_t>& receive, Purpose purpose) override;
  void barrier() override;

 private:
  void book(const char* op, const at::Tensor& t, Purpose purpose);
  at::Tensor copies(const at::Tensor& t) const;  // [size, ...shape of t]

  int size_;
  Ledger& ledger_;
};

}  // namespace bnlab
