// Where the ranks of a run meet. This header needs no LibTorch.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "harness/placement.hpp"

namespace bnlab {

// What every exchange of CPU ranks takes longer than it really does: a slower network
// (delayed_communicator.cpp).
struct ExchangeDelay {
  double seconds = 0;
  double bytes_per_s = 0;  // for what a rank hands over; 0: its bytes take no longer
  bool any() const { return seconds > 0 || bytes_per_s > 0; }
};

// The variable that says how long ranks wait for each other at first.
inline constexpr const char* kMeetingTimeout = "BNLAB_MEETING_TIMEOUT_S";

struct Rendezvous {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // selects the GPU
  std::string address = "127.0.0.1";
  int port = 0;               // unused in a world of one
  int listen_fd = -1;         // rank 0: a socket already bound and listening on `port`; -1: open one
  bool store_exists = false;  // the launcher serves the store (torchrun); rank 0 starts none
  std::string prefix;         // keeps several worlds on one store apart
  Exchange exchange = Exchange::shared_memory;  // on GPUs all but peers is NCCL
  std::chrono::milliseconds timeout{60000};     // for every collective and the meeting itself
  ExchangeDelay delay = {};
};

// A random word, by which one use of a store is told from all others: a launcher's store may outlive the
// programs that it starts, and keep their keys.
std::string new_word();

// The text of rank 0, on every rank, through the store of the rendezvous. Called by every rank. Throws Error
// (communication) if the ranks do not meet within the timeout.
std::string share_text(const Rendezvous& rendezvous, const std::string& text_of_rank0);
// The texts of all ranks, in their order, on every rank; likewise.
std::vector<std::string> gather_texts(const Rendezvous& rendezvous, const std::string& own);

}  // namespace bnlab
