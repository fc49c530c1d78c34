// Residual blocks one behind another, named "0", "1", ... as torchvision names them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/models/backbone.hpp"

namespace bnlab {

template <class Block>
class ResidualStage : public torch::nn::Module {
 public:
  // `make`: (place, path in the network) -> std::shared_ptr<Block>. `name`: the path of the stage.
  template <class Make>
  ResidualStage(const std::string& name, int64_t blocks, Make make) {
    for (int64_t b = 0; b < blocks; ++b) {
      const std::string n = std::to_string(b);
      blocks_.push_back(register_module(n, make(b, name + "." + n)));
    }
  }

  at::Tensor forward(at::Tensor x, const Pass& pass) {
    for (const auto& block : blocks_) {
      x = block->forward(x, pass);
    }
    return x;
  }

 private:
  std::vector<std::shared_ptr<Block>> blocks_;
};

}  // namespace bnlab
