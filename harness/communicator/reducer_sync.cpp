#include "harness/communicator/reducer_sync.hpp"

#include <algorithm>
#include <utility>

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "harness/error.hpp"

namespace bnlab {
namespace {

constexpr int64_t kFirstBucketBytes = 1 << 20;  // small, so that the first exchange starts early
constexpr int64_t kBucketBytes = 25 << 20;

}  // namespace

ReducerSync::ReducerSync(std::vector<at::Tensor> parameters, c10::intrusive_ptr<c10d::ProcessGroup> group,
                         Ledger& ledger)
    : parameters_(std::move(parameters)), group_(std::move(group)), ledger_(ledger) {
  auto [indices, limits] = c10d::compute_bucket_assignment_by_size(
      parameters_, {static_cast<size_t>(kFirstBucketBytes), static_cast<size_t>(kBucketBytes)});
  std::reverse(indices.begin(), indices.end());  // gradients arrive last parameter first
  buckets_ = static_cast<int64_t>(indices.size());
  for (const at::Tensor& p : parameters_) {
    bytes_ += static_cast<int64_t>(p.nbytes());
  }
  reducer_ = std::make_shared<c10d::Reducer>(
      parameters_, std::move(indices), group_, std::vector<bool>(parameters_.size(), false), kBucketBytes,
      /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true,
      std::unordered_map<size_t, std::string>{}, kFirstBucketBytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>{});
}

ReducerSync::~ReducerSync() = default;

void ReducerSync::before_forward() {
  reducer_->prepare_for_forward();
  reducer_->rebuild_buckets();  // once, after the first step: in the order in which gradients arrived
}

void ReducerSync::before_backward() {
  reducer_->prepare_for_backward({});
}

void ReducerSync::after_backward() {
  for (int64_t i = 0; i < buckets_; ++i) {  // Reducer's own callback has waited for them
    ledger_.add("all_reduce", Purpose::gradients, 0, bytes_ / buckets_);
  }
}

void ReducerSync::after_step() {
  for (at::Tensor& p : parameters_) {  // zero_grad() refuses gradients that are views of buckets
    p.mutable_grad() = at::Tensor();
  }
}

}  // namespace bnlab
