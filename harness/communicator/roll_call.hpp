// A question that rank 0 asks all ranks although they may be stuck: what are you doing? Every other rank has
// a thread that waits for it at the store and answers. This header needs no LibTorch.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/communicator/rendezvous.hpp"

namespace bnlab {

class RollCall {
 public:
  // Called by every rank of a world that has met. No other roll call may have the prefix of `at`. `answer` is
  // called by another thread, or on rank 0 by call(). Until it is asked a rank costs the store four questions
  // a second.
  RollCall(const Rendezvous& at, std::function<std::string()> answer);
  ~RollCall();
  RollCall(const RollCall&) = delete;
  RollCall& operator=(const RollCall&) = delete;

  // On rank 0, once: the answers by rank, its own first, empty of those that have not come in time. Those
  // of all others are where the store is lost.
  std::vector<std::string> call(std::chrono::milliseconds patience);
  // On another rank: returns when rank 0 has heard the answers, or after so long. Launchers end all ranks
  // where one ends.
  void wait(std::chrono::milliseconds patience) const;

 private:
  class Answering;

  Rendezvous at_;
  std::function<std::string()> answer_;
  std::unique_ptr<Answering> answering_;  // on all ranks but the first
};

}  // namespace bnlab
