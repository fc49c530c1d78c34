// Data-parallel training of a LibTorch module: every rank holds the network, passes its own part of the batch
// through it, and steps by the mean of all gradients. What torch.nn.parallel.DistributedDataParallel is in
// Python.
//
//   bnlab::Ranks ranks = bnlab::Ranks::from_environment();
//   bnlab::DataParallel parallel(*net, ranks);                 // every rank starts from rank 0's weights
//   ...
//   loss = cross_entropy(net->forward(images), labels);        // of this rank's samples
//   optimizer.zero_grad();
//   parallel.backward(loss, images.size(0));                   // in the place of loss.backward()
//   optimizer.step();
//
// Running statistics are the layers' own affair (batch_norm.hpp): the strategy says whose they are, and
// nothing is broadcast. Layers of the same ranks that exchange nothing in their forward pass leave it to
// backward() to meet the other ranks and to merge their running statistics, for all of them at once. What is
// wrong is thrown as std::runtime_error with one sentence that names the rank.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <bnlab/export.hpp>
#include <bnlab/ranks.hpp>

namespace bnlab {

class GradientSync;

class BNLAB_API DataParallel {
 public:
  struct Options {
    // Whether a backward pass may reach only some of the parameters. The others then have zero gradients, and
    // all travel in one exchange after the backward pass, not during it.
    bool unused_parameters = false;
  };

  // Sends rank 0's parameters and buffers to the others. The module outlives this. Called by every rank.
  //
  // Here, in broadcast(), and in the first backward() after other parameters need gradients or have moved,
  // the ranks compare their modules: names, shapes, strides, types and requires_grad of all parameters and
  // buffers, in their order. The first that differs is an error on all ranks, which names it. So are
  // parameters that are sparse, complex, of integers or on several devices, embeddings with sparse
  // gradients, and modules without a parameter that needs a gradient.
  DataParallel(torch::nn::Module& module, Ranks ranks, const Options& options);
  DataParallel(torch::nn::Module& module, Ranks ranks);
  ~DataParallel();
  DataParallel(DataParallel&&) noexcept;

  // The gradients of the mean of all ranks' losses, added to what grad() holds on every rank alike. With
  // `rows` (samples that `loss` is the mean over, here) that is the mean over the samples of all ranks,
  // however uneven they are: a rank with no sample calls it with the loss of an empty batch and rows 0. Ranks
  // that share memory exchange once, behind the backward pass; others bucket by bucket, while it goes on
  // (c10d's Reducer). Called by every rank; ranks that have passed different layers since the last call get
  // an error that names them.
  void backward(const at::Tensor& loss, std::optional<int64_t> rows = std::nullopt);

  // A backward pass that exchanges no gradients: they add up in grad() until the next backward() averages
  // all; that one has to reach every parameter itself, unless unused_parameters is set. Losses are the
  // program's to scale: divide by the number of passes for their mean.
  void accumulate(const at::Tensor& loss);

  // Sends rank 0's parameters and buffers to the others, as after a checkpoint that only rank 0 has read.
  void broadcast();

 private:
  void check_module() const;
  void renew();
  at::Tensor weighted(const at::Tensor& loss, std::optional<int64_t> rows) const;

  torch::nn::Module& module_;
  Ranks ranks_;
  Options options_;
  std::vector<at::Tensor> parameters_;  // those that need gradients, when `sync_` was made
  std::unique_ptr<GradientSync> sync_;
};

}  // namespace bnlab
