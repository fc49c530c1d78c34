// GradientSync over c10d's Reducer: buckets of gradients, averaged while backward still runs.
#pragma once

#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "harness/communicator/communicator.hpp"
#include "harness/communicator/gradient_sync.hpp"

namespace c10d {
class Reducer;
}

namespace bnlab {

class ReducerSync : public GradientSync {
 public:
  ReducerSync(std::vector<at::Tensor> parameters, c10::intrusive_ptr<c10d::ProcessGroup> group,
              Ledger& ledger);
  ~ReducerSync() override;
  void before_forward() override;
  void before_backward() override;
  void after_backward() override;
  void after_step() override;

 private:
  std::vector<at::Tensor> parameters_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  Ledger& ledger_;
  std::shared_ptr<c10d::Reducer> reducer_;
  int64_t buckets_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace bnlab
