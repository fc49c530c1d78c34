#include "harness/communicator/gradient_sync.hpp"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <map>
#include <utility>

#include "harness/communicator/world_parts.hpp"

namespace bnlab {
namespace {

// A place for each of the tensors in the flat one, laid out in memory as the tensor is, so that one kernel
// copies them all. Tensors that parameters or gradients are have the same layout on all ranks.
std::vector<at::Tensor> places_in(const at::Tensor& flat, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> places;
  int64_t begin = 0;
  for (const at::Tensor& tensor : tensors) {
    const at::Tensor place = flat.narrow(0, begin, tensor.numel());
    places.push_back(tensor.is_non_overlapping_and_dense()
                         ? place.as_strided(tensor.sizes(), tensor.strides())
                         : place.view(tensor.sizes()));
    begin += tensor.numel();
  }
  return places;
}

// Tensors of one dtype, and a flat one that has a place for each.
struct Flat {
  std::vector<at::Tensor> tensors;
  at::Tensor flat;
  std::vector<at::Tensor> places;
};

std::vector<Flat> flats_of(const std::vector<at::Tensor>& tensors) {
  std::map<at::ScalarType, Flat> by_dtype;
  for (const at::Tensor& tensor : tensors) by_dtype[tensor.scalar_type()].tensors.push_back(tensor);
  std::vector<Flat> flats;
  for (auto& [dtype, group] : by_dtype) {
    int64_t elements = 0;
    for (const at::Tensor& tensor : group.tensors) elements += tensor.numel();
    group.flat = at::empty({elements}, group.tensors.front().options().requires_grad(false));
    group.places = places_in(group.flat, group.tensors);
    flats.push_back(std::move(group));
  }
  return flats;
}

// From then on the gradients are views of the flat tensor, multiplied with `factor`.
void take_gradients(Flat& flat, double factor) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : flat.tensors) gradients.push_back(parameter.grad());
  at::_foreach_copy_(flat.places, gradients);
  for (size_t i = 0; i < flat.tensors.size(); ++i) flat.tensors[i].mutable_grad() = flat.places[i];
  if (factor != 1) flat.flat.mul_(factor);
}

class FlatSync : public GradientSync {
 public:
  FlatSync(std::vector<at::Tensor> parameters, FlatExchange exchange, double factor, bool replayed)
      : parameters_(std::move(parameters)),
        exchange_(std::move(exchange)),
        factor_(factor),
        replayed_(replayed) {}
  void before_forward() override {}
  void before_backward() override {}

  void after_backward() override {
    if (flats_.empty()) flats_ = flats_of(parameters_);
    for (Flat& flat : flats_) take_gradients(flat, factor_);
  }

  void exchange() override {
    const at::NoGradGuard no_grad;
    for (Flat& flat : flats_) exchange_(flat.flat);
  }

  void after_step(int64_t /*steps_done*/) override {
    drop_gradients(parameters_);
    if (!replayed_) flats_.clear();
  }

 private:
  std::vector<at::Tensor> parameters_;
  FlatExchange exchange_;
  double factor_;
  bool replayed_;
  std::vector<Flat> flats_;
};

// One rank, whose gradients are the mean. What several ranks would exchange is booked, as it is for
// statistics.
class SyncOfOne : public GradientSync {
 public:
  SyncOfOne(std::vector<at::Tensor> parameters, Ledger& ledger)
      : parameters_(std::move(parameters)), ledger_(ledger) {}
  void before_forward() override {}
  void before_backward() override {}
  void after_backward() override {}
  void exchange() override {
    int64_t elements = 0, bytes = 0;
    for (const at::Tensor& parameter : parameters_) {
      elements += parameter.numel();
      bytes += static_cast<int64_t>(parameter.nbytes());
    }
    ledger_.add("all_reduce", Purpose::gradients, elements, bytes);
  }
  void after_step(int64_t /*steps_done*/) override { drop_gradients(parameters_); }

 private:
  std::vector<at::Tensor> parameters_;
  Ledger& ledger_;
};

// The process group that the Reducer uses. Every bucket is booked when it is sent.
class BookedGroup : public c10d::ProcessGroup {
 public:
  BookedGroup(const c10::intrusive_ptr<c10d::Backend>& backend, at::Device device, Ledger& ledger)
      : ProcessGroup(backend->getRank(), backend->getSize()), ledger_(ledger) {
    const BackendType type = device.is_cuda() ? NCCL : GLOO;
    setBackend(device.type(), type, backend);
    setDefaultBackend(type);
  }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& bucket,
                                           const c10d::AllreduceOptions& options) override {
    for (const at::Tensor& t : bucket)
      ledger_.add("all_reduce", Purpose::gradients, t.numel(), static_cast<int64_t>(t.nbytes()));
    return ProcessGroup::allreduce(bucket, options);
  }

 private:
  Ledger& ledger_;
};

class ReducerSync : public GradientSync {
 public:
  ReducerSync(std::vector<at::Tensor> parameters, c10::intrusive_ptr<c10d::ProcessGroup> group)
      : parameters_(std::move(parameters)) {
    auto [buckets, limits] =
        c10d::compute_bucket_assignment_by_size(parameters_, {kFirstBucketBytes, kBucketBytes});
    std::reverse(buckets.begin(), buckets.end());  // gradients arrive last parameter first
    reducer_ = std::make_shared<c10d::Reducer>(
        parameters_, std::move(buckets), std::move(group), std::vector<bool>(parameters_.size(), false),
        kBucketBytes, /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/true,
        std::unordered_map<size_t, std::string>{}, kFirstBucketBytes,
        /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>{});
  }

  void before_forward() override {
    reducer_->prepare_for_forward();
    reducer_->rebuild_buckets();  // once, after the first step: in the order in which gradients arrived
  }

  void before_backward() override { reducer_->prepare_for_backward({}); }
  void after_backward() override {}  // a callback of Reducer's has waited for the buckets
  void exchange() override {}

  void after_step(int64_t /*steps_done*/) override {
    for (at::Tensor& p : parameters_)  // zero_grad() refuses gradients that are views of buckets
      p.mutable_grad() = at::Tensor();
  }

 private:
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<c10d::Reducer> reducer_;
};

// The hooks see every backward pass that is made or recorded, and take part in those with which an exchange
// goes.
class BucketSync : public GradientSync {
 public:
  BucketSync(const std::vector<at::Tensor>& parameters, Communicator& gradients,
             const std::vector<size_t>& bucket_bytes)
      : arriving_(parameters.rbegin(), parameters.rend()), gradients_(gradients) {
    const auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(arriving_, bucket_bytes));
    for (const std::vector<size_t>& places : buckets) {
      std::vector<at::Tensor> in_bucket;
      for (const size_t place : places) in_bucket.push_back(arriving_[place]);
      for (const at::Tensor& parameter : in_bucket)
        torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                       std::make_unique<Hook>(*this, buckets_.size()));
      buckets_.push_back(std::move(flats_of(in_bucket).front()));  // a bucket has one dtype
    }
  }
  ~BucketSync() override {
    for (const at::Tensor& parameter : arriving_)
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
  }
  BucketSync(const BucketSync&) = delete;
  BucketSync& operator=(const BucketSync&) = delete;

  // The recording of a pass may have broken off.
  void before_forward() override {
    missing_.clear();
    under_way_.clear();
  }

  void before_backward() override {
    for (const Flat& bucket : buckets_) missing_.push_back(bucket.tensors.size());
  }

  void after_backward() override {
    TORCH_INTERNAL_ASSERT(under_way_.size() == buckets_.size(), "a parameter has no gradient");
    for (const std::unique_ptr<Pending>& exchange : under_way_) exchange->wait();
    under_way_.clear();
    missing_.clear();
  }

  void exchange() override {}
  void after_step(int64_t /*steps_done*/) override { drop_gradients(arriving_); }

 private:
  class Hook : public torch::autograd::PostAccumulateGradHook {
   public:
    Hook(BucketSync& sync, size_t bucket) : sync_(sync), bucket_(bucket) {}
    void operator()(const at::Tensor& /*parameter*/) override { sync_.arrived(bucket_); }

   private:
    BucketSync& sync_;
    size_t bucket_;
  };

  // Ranks whose gradients arrive in another order exchange the buckets in the same one.
  void arrived(size_t bucket) {
    if (missing_.empty()) return;
    --missing_[bucket];
    for (size_t next = under_way_.size(); next < buckets_.size() && missing_[next] == 0; ++next) {
      Flat& full = buckets_[next];
      take_gradients(full, 1.0 / gradients_.size());
      under_way_.push_back(gradients_.all_reduce_async(full.flat, Purpose::gradients));
    }
  }

  std::vector<at::Tensor> arriving_;  // the last parameter first
  Communicator& gradients_;
  std::vector<Flat> buckets_;
  std::vector<size_t> missing_;  // gradients of each bucket; empty where none is awaited
  std::vector<std::unique_ptr<Pending>> under_way_;
};

}  // namespace

void exchange_flat(const std::vector<at::Tensor>& tensors, const FlatExchange& exchange) {
  const at::NoGradGuard no_grad;
  for (Flat& flat : flats_of(tensors)) {
    at::_foreach_copy_(flat.places, flat.tensors);
    exchange(flat.flat);
    at::_foreach_copy_(flat.tensors, flat.places);
  }
}

std::unique_ptr<GradientSync> make_flat_sync(std::vector<at::Tensor> parameters, FlatExchange exchange,
                                             double factor, bool replayed) {
  return std::make_unique<FlatSync>(std::move(parameters), std::move(exchange), factor, replayed);
}

std::unique_ptr<GradientSync> make_bucket_sync(const std::vector<at::Tensor>& parameters,
                                               Communicator& gradients,
                                               const std::vector<size_t>& bucket_bytes) {
  return std::make_unique<BucketSync>(parameters, gradients, bucket_bytes);
}

std::unique_ptr<GradientSync> make_sync_of_one(std::vector<at::Tensor> parameters, Ledger& ledger) {
  return std::make_unique<SyncOfOne>(std::move(parameters), ledger);
}

void drop_gradients(const std::vector<at::Tensor>& parameters) {
  for (const at::Tensor& parameter : parameters) parameter.mutable_grad() = at::Tensor();
}

std::unique_ptr<GradientSync> make_reducer(std::vector<at::Tensor> parameters,
                                           const c10::intrusive_ptr<c10d::Backend>& backend,
                                           at::Device device, Ledger& ledger) {
  return std::make_unique<ReducerSync>(std::move(parameters),
                                       c10::make_intrusive<BookedGroup>(backend, device, ledger));
}

}  // namespace bnlab
