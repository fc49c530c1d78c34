// Batch normalisation for LibTorch programs that train on one device or on many: a module as
// torch::nn::BatchNorm2d is one, whose statistics follow a strategy of bnlab.
//
//   bnlab::BatchNorm norm(64);                                                     // as BatchNorm2d(64)
//   bnlab::BatchNorm norm(bnlab::BatchNormOptions(64).strategy("sync").ranks(ranks));   // over all ranks
//
// Parameters, buffers and the count of batches have BatchNorm2d's names, so that a checkpoint of either loads
// into the other; of strategies without running statistics (group_norm, layer_norm, ...) those of GroupNorm.
// The buffers always hold what an evaluation would use: torch::save is right at any moment of a training
// (beside a DataParallel a step is in them once its backward() returns).
// What they are written from outside (torch::load, clone, to, a copy_ of the program) is where training goes
// on. What is wrong is thrown as std::runtime_error with one sentence. This header needs LibTorch alone.
#pragma once

#include <torch/arg.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bnlab/export.hpp>
#include <bnlab/ranks.hpp>

namespace bnlab {

class EmbeddedSite;

// Which forward passes in training update the running statistics and count as a step.
enum class Counting {
  every_forward,          // each, as torch::nn::BatchNorm2d does: two passes before one backward pass are two
  first_before_backward,  // the first of several before one backward pass; none without gradients.
                          // So a discriminator that sees real and made images keeps the statistics of the
                          // first. The others normalise by their own batch and leave no trace; batch_renorm
                          // does not correct them.
};

struct BatchNormOptions {
  /* implicit */ BatchNormOptions(int64_t num_features = 0) : num_features_(num_features) {}

  // As of torch::nn::BatchNormOptions. momentum: weight of the new value; nullopt: the average of all steps.
  TORCH_ARG(int64_t, num_features);
  TORCH_ARG(double, eps) = 1e-5;
  TORCH_ARG(std::optional<double>, momentum) = 0.1;
  TORCH_ARG(bool, affine) = true;
  TORCH_ARG(bool, track_running_stats) = true;

  // A name of `bnlab list strategies`, a label such as "group_norm(groups=4)", or JSON as in a spec.
  // Options that are given there count before the ones above. All but those that change convolutions
  // (weight_norm, mabn, ...); `precise` is its base, whose statistics recompute() below makes anew.
  TORCH_ARG(std::string, strategy) = "per_tower";
  TORCH_ARG(Ranks, ranks);
  // Units of statistics on each rank ("GPUs"): consecutive parts of its rows, of which the first have one row
  // more where the number does not divide them.
  TORCH_ARG(int64_t, towers_per_rank) = 1;
  // Whether a ReLU follows, behind the residual where there is one: one sweep in place of two or three.
  TORCH_ARG(bool, relu) = false;
  TORCH_ARG(Counting, counting) = Counting::every_forward;
  // In training ranks tell each other in 40 bytes which layer they are at and how many rows they have, so
  // that uneven and empty batches are exact and ranks at different layers get an error that names both.
  // Layers that exchange moments in their forward pass (sync, batch_renorm, ...) do so there; the others once
  // for all of them in DataParallel::backward, or in their forward pass where these ranks have no
  // DataParallel. `true`: every rank has as many rows and is at the same layer; none is sent.
  TORCH_ARG(bool, equal_batches) = false;
  // Where the ranks remember apart (per_tower, averaged, ...) and there are several, they merge the running
  // statistics after every step, in 16 bytes a channel: in DataParallel::backward in one exchange for all
  // layers, else in their forward passes. `false`: eval() merges them, on all ranks at once, and until then
  // the buffers hold what they held after the last merge.
  TORCH_ARG(bool, always_current) = true;
  // Training steps of the whole run, for strategies with a schedule. 0: not known; batch_renorm then refuses
  // to train unless its schedule is given in steps, or is null.
  TORCH_ARG(int64_t, total_steps) = 0;
  TORCH_ARG(uint64_t, seed) = 0;  // for what a strategy draws
  TORCH_ARG(std::string, name);   // in messages; empty: "norm" and a number, in the order of making
};

class BatchNormImpl;

// A tensor that a layer holds. What is assigned to it takes its place at once and everywhere: in passes, in
// named_parameters() and named_buffers(), in save, clone and to. An optimizer keeps the one that it was
// given. Throws std::runtime_error for another shape, and where the layer holds no such tensor. Copies are
// plain tensors.
class BNLAB_API HeldTensor : public at::Tensor {
 public:
  HeldTensor() = default;
  HeldTensor(const HeldTensor& other) : at::Tensor(other) {}
  HeldTensor& operator=(const HeldTensor& other) { return *this = static_cast<const at::Tensor&>(other); }
  HeldTensor& operator=(const at::Tensor& tensor);
  ~HeldTensor() = default;

 private:
  friend class BatchNormImpl;
  void put(const at::Tensor& tensor);

  BatchNormImpl* layer_ = nullptr;  // null: a plain tensor
  const char* name_ = nullptr;
  const void* known_ = nullptr;  // what the layer knows of
};

class BNLAB_API BatchNormImpl : public torch::nn::Cloneable<BatchNormImpl> {
 public:
  explicit BatchNormImpl(BatchNormOptions options);
  BatchNormImpl(const BatchNormImpl& other) = default;
  BatchNormImpl& operator=(const BatchNormImpl& other);
  ~BatchNormImpl() override = default;

  // x: [rows, channels] and up to three more dimensions, in either memory format, float32, float64, bfloat16
  // or float16 as the strategy takes it; residual: like x, or undefined. Returns act(norm(x) + residual). In
  // training every rank calls it, in the same order; evaluation exchanges nothing and writes nothing, so that
  // several threads may evaluate one layer at once. Gradients of gradients (create_graph) are exact, on every
  // rank alike; batch_renorm's backward pass refuses them by name.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual = {});

  void reset() override;
  void reset_parameters();
  void reset_running_stats();
  void pretty_print(std::ostream& stream) const override;
  void train(bool on = true) override;
  // Half precision leaves weights and statistics in float32, as such networks want them.
  void to(at::Device device, at::ScalarType dtype, bool non_blocking = false) override;
  void to(at::ScalarType dtype, bool non_blocking = false) override;
  void to(at::Device device, bool non_blocking = false) override;
  // Other options for this layer. Its tensors stay, so that an optimizer that has them goes on. Returns the
  // parameters that are new, as the slope of dynamic_tanh, which the optimizer has to be given; those that
  // the options have not, go. Throws std::runtime_error for another number of features, and where the ranks
  // hold running statistics apart: after merge().
  std::vector<at::Tensor> set_options(BatchNormOptions options);
  // Where always_current is false: merges now. Called by every rank.
  void merge();

  // What is written here counts from the next pass on, momentum and eps as often as a schedule wants. Options
  // that would give the layer other tensors are refused there: set_options takes them.
  BatchNormOptions options;
  HeldTensor weight, bias;               // [C]; undefined without affine
  HeldTensor running_mean, running_var;  // [C]; undefined where the strategy keeps none
  HeldTensor num_batches_tracked;        // [] int64; likewise

  EmbeddedSite& site() const { return *site_; }  // for the library's own sources

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())})

 private:
  template <typename ModuleType, typename... ArgumentTypes>
  friend struct torch::nn::AnyModuleHolder;
  friend class HeldTensor;
  void hold_tensors();
  void take(HeldTensor& member, const at::Tensor& tensor);
  bool is_assigned(const HeldTensor& member) const;
  void follow();

  std::shared_ptr<EmbeddedSite> site_;
};

TORCH_MODULE(BatchNorm);

// Exchanges every torch::nn::BatchNorm1d, 2d and 3d below `module` for a BatchNorm with these options, and
// sets the options of every BatchNorm there; num_features, eps, momentum, affine and track_running_stats stay
// what each layer has, and its name is its path. Weights and statistics stay, in the same tensors; a layer
// that stands in several places stays one. Returns how many places it changed. C++ fixes the type of a
// module's members: only layers in Sequential, ModuleList and ModuleDict can be exchanged from outside.
// Others are refused, all of them named, before anything is changed: declare such a member as
// bnlab::BatchNorm, which is a BatchNorm2d until it is converted. A class made of BatchNorm is refused,
// too.
BNLAB_API int64_t convert(torch::nn::Module& module, const BatchNormOptions& options);
// And back: a torch::nn::BatchNorm2d (dims 2), 1d or 3d in the place of every BatchNorm whose strategy has
// BatchNorm's parameters, with new tensors: convert before the optimizer is made. Layers with a fused ReLU
// are refused, and so are members of a fixed type.
BNLAB_API int64_t convert_back(torch::nn::Module& module, int64_t dims = 2);

// Puts each BatchNorm in a Sequential into the convolution or linear layer just before it there, for
// evaluations alone: a new one stands in its place, and an Identity, or the ReLU that was fused, in the
// norm's. Outputs stay the same up to rounding; a linear layer's inputs are [rows, features]. Returns the
// BatchNorms that stay, with why: {"1: its strategy group_norm depends on its input"}. Throws where one is
// not in evaluation mode.
BNLAB_API std::vector<std::string> fold(torch::nn::Module& module);

// Recomputes the running statistics of all layers below `module` over `batches` training batches, merged
// exactly over batches, towers and ranks (PreciseBN): calls forward(i) for each, which passes this rank's
// part of batch i through the network. Called by every rank. Training later goes on from the statistics that
// it had.
BNLAB_API void recompute(torch::nn::Module& module, int64_t batches,
                         const std::function<void(int64_t)>& forward);

}  // namespace bnlab
