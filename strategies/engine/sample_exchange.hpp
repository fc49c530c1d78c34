// Rows of the global batch moved between the ranks by a permutation P, as autograd operations:
//   scatter   y = P x: place i of the batch receives row permutation[i]; dx = P^T dy
//   restore   y = P^T x, what scatter undoes; dx = P dy
// Each is one all-to-all, and so is its backward pass; rows stay as they are, to the bit.
#pragma once

#include <torch/custom_class.h>

#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/towers.hpp"

namespace bnlab {

class SampleExchange : public torch::CustomClassHolder {
 public:
  // permutation: of all rows of the global batch, rows_per_sample to a sample. Every rank has as many places
  // as rows. `communicator` outlives the backward pass.
  SampleExchange(const std::vector<int64_t>& permutation, const Towers& towers, int64_t rows_per_sample,
                 at::Device device, Communicator& communicator);

  // x: this rank's rows [n, ...]; the other dimensions are those of every rank that has rows. Called by every
  // rank, in the same order.
  at::Tensor move(const at::Tensor& x, bool restore) const;  // without autograd

 private:
  struct Way {
    at::Tensor pick;  // int64: the rows to send, in rank order
    std::vector<int64_t> send, receive;
    at::Tensor place;  // int64: where each place's row stands among those received
  };
  Way scatter_, restore_;
  Communicator& communicator_;
};

at::Tensor scatter(const at::Tensor& x, const c10::intrusive_ptr<SampleExchange>& exchange);
at::Tensor restore(const at::Tensor& x, const c10::intrusive_ptr<SampleExchange>& exchange);

}  // namespace bnlab
