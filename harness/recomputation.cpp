#include "harness/recomputation.hpp"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/types.h>

#include <memory>
#include <utility>

#include "harness/support/autocast.hpp"

namespace bnlab {
namespace {

class Block;

// The block whose forward pass this thread is in.
thread_local Block* current = nullptr;

// A block from its forward pass to the end of its backward pass. The nodes of the graph own it, each through
// the tensors that it has saved.
class Block : public std::enable_shared_from_this<Block> {
 public:
  Block(const std::vector<at::Tensor>& inputs, const Pass& pass, BlockForward forward)
      : pass_(pass),
        forward_(std::move(forward)),
        autocast_(AutocastState::now(inputs.front().device().type())),
        kept_(pass.details.recompute) {
    pass_.details.kept = &kept_;
    for (const at::Tensor& input : inputs)
      inputs_.push_back(input.defined() ? input.detach().requires_grad_(input.requires_grad()) : input);
  }

  at::Tensor first_pass(const std::vector<at::Tensor>& inputs) { return pass(inputs, /*again=*/false); }

  // Autograd saves a tensor in the pass under way. Returns its place among those of the pass.
  size_t save(const at::Tensor& tensor) {
    if (again_) tensors_.push_back(tensor.detach());
    return saved_++;
  }

  // A tensor that was saved in the first pass. Each is asked for once, and is not held any longer; so the
  // graph of a block serves one backward pass.
  at::Tensor take(size_t place) {
    if (tensors_.empty()) second_pass();
    const at::Tensor tensor = std::exchange(tensors_.at(place), at::Tensor());
    TORCH_INTERNAL_ASSERT(tensor.defined(), "a tensor of a recomputed block was asked for twice");
    return tensor;
  }

 private:
  at::Tensor pass(const std::vector<at::Tensor>& inputs, bool again) {
    again_ = again;
    saved_ = 0;
    kept_.begin(again);
    current = this;
    at::Tensor output;
    try {
      output = forward_(inputs, pass_);
    } catch (...) {
      current = nullptr;
      throw;
    }
    current = nullptr;
    return output;
  }

  void second_pass() {
    const at::AutoGradMode with_gradients(true);
    const WithAutocast autocast(autocast_);
    const size_t saved_before = saved_;
    pass(std::exchange(inputs_, {}), /*again=*/true);
    TORCH_INTERNAL_ASSERT(saved_ == saved_before,
                          "a block has saved other tensors in its second forward pass");
  }

  std::vector<at::Tensor> inputs_;  // without the graph before them
  Pass pass_;
  BlockForward forward_;
  AutocastState autocast_;
  Kept kept_;
  bool again_ = false;
  size_t saved_ = 0;                 // tensors, in the last pass
  std::vector<at::Tensor> tensors_;  // in the second pass, by place; undefined once they are taken
};

// Stands in the graph for a tensor that a block has saved.
class DroppedTensor : public torch::autograd::SavedVariableHooks {
 public:
  explicit DroppedTensor(std::shared_ptr<Block> block) : block_(std::move(block)) {}
  void call_pack_hook(const at::Tensor& tensor) override { place_ = block_->save(tensor); }
  at::Tensor call_unpack_hook() override { return block_->take(place_); }

 private:
  std::shared_ptr<Block> block_;
  size_t place_ = 0;
};

// LibTorch's engine, which is asked how to save each tensor. Python's does the same for its hooks.
class Engine : public torch::autograd::Engine {
 public:
  ~Engine() override { stop(); }
  std::unique_ptr<torch::autograd::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return current == nullptr ? nullptr : std::make_unique<DroppedTensor>(current->shared_from_this());
  }
};

torch::autograd::Engine& engine() {
  static Engine engine;
  return engine;
}

}  // namespace

at::Tensor recomputed(const std::vector<at::Tensor>& inputs, const Pass& pass, const BlockForward& forward) {
  const bool trains = pass.mode == Mode::train || pass.mode == Mode::train_frozen;
  if (pass.details.recompute == Recompute::none || pass.details.kept != nullptr || !trains ||
      !at::GradMode::is_enabled())
    return forward(inputs, pass);
  [[maybe_unused]] static const bool asked = (torch::autograd::set_default_engine_stub(&engine), true);
  return std::make_shared<Block>(inputs, pass, forward)->first_pass(inputs);
}

}  // namespace bnlab
