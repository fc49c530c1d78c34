// The strategies as layers of your own LibTorch program, in the place of torch::nn::BatchNorm2d:
//
//   bnlab::Norms norms("sync", {.towers = 4});
//   torch::nn::Sequential net(torch::nn::Conv2d(3, 16, 3), norms.layer(16), torch::nn::ReLU());
//
// A layer is used as any module: net->train() and net->eval() switch it, its parameters and buffers have the
// names that those of BatchNorm2d have, so that torch::load takes a checkpoint of either. What is wrong,
// strategies and sizes that do not fit among it, is thrown as std::runtime_error with one sentence. This
// header needs LibTorch alone.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>

namespace bnlab {

class OneSite;
class SharedStrategy;

// The processes that train one network together, each with its part of the batch. All of them make their
// Norms alike, and call and switch the layers in the same order, with as many rows on every rank. The
// gradients of weights are those of the rank's own rows: the program averages them over the ranks, as it does
// those of its other parameters.
struct Ranks {
  int rank = 0;
  int count = 1;
  std::string address = "127.0.0.1";  // of rank 0
  int port = 0;                       // a free one there, for each Norms another
};

struct NormsOptions {
  // The batch of all ranks is cut into so many towers, each of which is one unit of statistics: consecutive
  // rows of equal numbers; where that cannot be, the first towers of a rank have one row more.
  int64_t towers = 1;
  // Of the whole training, for strategies with a schedule. 0: not known; batch_renorm then refuses to train
  // unless its schedule is given in steps, or is null.
  int64_t steps = 0;
  uint64_t seed = 0;                  // of what a strategy draws
  at::Device device = at::kCPU;       // of all inputs
  at::ScalarType dtype = at::kFloat;  // of weights and statistics: kFloat or kDouble
  Ranks ranks = {};
};

class Norm : public torch::nn::Module {
 public:
  Norm(std::shared_ptr<SharedStrategy> shared, std::string name, int64_t channels);

  // x: [rows, channels, ...]. In training each call counts as one step.
  at::Tensor forward(at::Tensor x);

  // Switched to evaluation, the buffers hold the statistics of all towers as the strategy merges them: the
  // time for torch::save. Switched back, training goes on where it was.
  void train(bool on = true) override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  std::shared_ptr<SharedStrategy> shared_;
  std::string name_;  // in messages
  std::shared_ptr<OneSite> site_;
  at::Tensor num_batches_tracked_;
  int64_t steps_ = 0;  // the same number, where no device has to be asked
};

// One strategy and the layers that it makes, which may outlive it.
class Norms {
 public:
  // strategy: a name, or JSON as in a spec: R"({"name": "group_norm", "groups": 4})". All strategies of
  // `bnlab list strategies` but those that need more than a layer: weight_norm makes convolutions, precise
  // asks for training batches.
  explicit Norms(const std::string& strategy, const NormsOptions& options = {});

  std::shared_ptr<Norm> layer(int64_t channels);

 private:
  std::shared_ptr<SharedStrategy> shared_;
  int64_t layers_ = 0;
};

}  // namespace bnlab
