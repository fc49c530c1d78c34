// Rank 0 of a world without other ranks: what it hands over is booked and answered
// (counting_communicator.hpp). A training step in it does all of a rank's own work among so many ranks, and
// waits for nobody.
#pragma once

#include "harness/communicator/counting_communicator.hpp"
#include "harness/communicator/world.hpp"

namespace bnlab {

class CountingWorld : public World {
 public:
  CountingWorld(int size, at::Device device) : device_(device), communicator_(size, ledger_) {}

  int rank() const override { return 0; }
  int size() const override { return communicator_.size(); }
  at::Device device() const override { return device_; }
  Communicator& statistics() override { return communicator_; }
  Communicator& gradients() override { return communicator_; }
  Communicator& host() override { return communicator_; }
  Ledger& ledger() override { return ledger_; }

  std::unique_ptr<GradientSync> gradient_sync(const std::vector<at::Tensor>& parameters,
                                              bool after_backward) override {
    return make_flat_sync(
        parameters, [this](at::Tensor& flat) { communicator_.all_reduce(flat, Purpose::gradients); },
        1.0 / size(), after_backward);
  }

  void barrier() override {}
  void shutdown() override {}

 private:
  at::Device device_;
  Ledger ledger_;
  CountingCommunicator communicator_;
};

}  // namespace bnlab
