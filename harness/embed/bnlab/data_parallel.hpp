// Data-parallel training of a LibTorch module: every rank holds the network, passes its own part of the batch
// through it, and steps by the mean of all gradients. What torch.nn.parallel.DistributedDataParallel is in
// Python.
//
//   bnlab::Ranks ranks = bnlab::Ranks::from_environment();
//   bnlab::DataParallel parallel(*net, ranks);                 // every rank starts from rank 0's weights
//   ...
//   loss = cross_entropy(net->forward(images), labels);        // this rank's samples
//   optimizer.zero_grad();
//   parallel.backward(loss, images.size(0));                   // in the place of loss.backward()
//   optimizer.step();
//
// Running statistics are the layers' own affair (batch_norm.hpp): the strategy says whose they are, and
// nothing is broadcast. Layers of the same ranks that exchange nothing in their forward pass leave it to
// backward() to meet the other ranks and to merge their running statistics, for all of them at once.
//
// What is wrong is thrown as std::runtime_error with one sentence that names the rank. A pass that one rank
// has begun and not brought to backward(), as something threw in between, ends the others' with an error, on
// all ranks, and the step after it is as if there had been none; where no layer waits for other ranks and no
// layer's pass is counted nobody sees it, and that rank is a batch ahead. On CPUs, where no layer exchanges
// statistics in its passes, the same goes for a backward pass that fails; elsewhere the other ranks wait for
// it until they lose contact. After an error of contact the ranks are done.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include <bnlab/export.hpp>
#include <bnlab/ranks.hpp>

namespace bnlab {

class BNLAB_API DataParallel {
 public:
  struct Options {
    // Whether a backward pass may reach only some of the parameters. One that no rank has reached keeps the
    // gradient that it had, or none; ranks that have not reached it add zero where others have. All travel in
    // one exchange after the backward pass, not during it.
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

  // The gradients of the mean of all ranks' losses, added to what grad() holds on every rank alike. One that
  // the program keeps after zero_grad() stays as it was; a view of one may not. With
  // `rows` (samples that `loss` is the mean over, here) that is the mean over the samples of all ranks,
  // however uneven they are: a rank with no sample calls it with the loss of an empty batch and rows 0. Ranks
  // that share memory exchange once, behind the backward pass; others bucket by bucket, while it goes on
  // (c10d's Reducer). Called by every rank; ranks that have passed different layers since the last call get
  // an error that names them. The loss is one real number, which may hold gradients that
  // torch::autograd::grad() has made with create_graph. Where the pass itself fails no parameter has a
  // gradient afterwards.
  void backward(const at::Tensor& loss, std::optional<int64_t> rows = std::nullopt);

  // A backward pass that exchanges no gradients: they add up in grad() until the next backward() averages
  // all; that one has to reach every parameter itself, unless unused_parameters is set. Losses are the
  // program's to scale: divide by the number of passes for their mean.
  void accumulate(const at::Tensor& loss);

  // Sends rank 0's parameters and buffers to the others, as after a checkpoint that only rank 0 has read.
  void broadcast();

 private:
  struct Exchange;
  void check_module() const;
  void renew();
  bool is_as_it_was() const;
  double meet(std::optional<int64_t> rows, bool anew) const;
  std::exception_ptr pass(const at::Tensor& loss, double weight);
  void refuse_missing(const std::vector<at::Tensor>& missing) const;
  void refuse_sparse_gradients() const;
  void tell(const std::vector<at::Tensor>& missing, bool failed);
  void listen(const std::exception_ptr& failure);
  void keep_handed_out();
  void hand_out();

  torch::nn::Module& module_;
  Ranks ranks_;
  Options options_;
  std::vector<at::Tensor> parameters_;  // those that need gradients, when `exchange_` was made
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace bnlab
