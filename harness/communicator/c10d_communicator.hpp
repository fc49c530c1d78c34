// A Communicator over one c10d process group. A world of one copies instead of calling the backend.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "harness/communicator/communicator.hpp"

namespace bnlab {

class C10dCommunicator : public Communicator {
 public:
  C10dCommunicator(c10::intrusive_ptr<c10d::Backend> backend, Ledger& ledger, std::string name);

  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }
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
  void note(const char* op, const at::Tensor& t, Purpose purpose);
  template <class Start>  // start() begins the collective and returns c10d's Work
  void wait_for(const char* op, Purpose purpose, const Start& start);

  c10::intrusive_ptr<c10d::Backend> backend_;
  Ledger& ledger_;
  std::string name_;  // "statistics", "gradients" or "host", for messages
};

}  // namespace bnlab
