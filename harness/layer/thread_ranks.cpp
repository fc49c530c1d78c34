#include "harness/layer/thread_ranks.hpp"

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <thread>
#include <vector>

#include "harness/error.hpp"
#include "harness/loopback_socket.hpp"

namespace bnlab {
namespace {

// Whether it says no more than that another rank has gone.
bool is_consequence(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return error.kind() == Error::Kind::communication;
  } catch (const std::exception& error) {
    return is_lost_contact(error);
  }
}

[[noreturn]] void throw_cause(const std::vector<std::exception_ptr>& failures) {
  for (const std::exception_ptr& failure : failures) {
    if (!is_consequence(failure)) {
      std::rethrow_exception(failure);
    }
  }
  std::rethrow_exception(failures.front());
}

void join_and_run(const Rendezvous& at, at::DeviceType device, const std::function<void(World&)>& body) {
  const auto world = join_world(at, device);
  body(*world);
  world->leave();
}

}  // namespace

void prepare_thread_ranks() {
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
}

void on_thread_ranks(int ranks, at::DeviceType device, const std::function<void(World&)>& body) {
  if (ranks == 1) {
    join_and_run({}, device, body);
    return;
  }
  const LoopbackSocket socket;
  std::vector<std::exception_ptr> outcomes(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Rendezvous at;
      at.rank = at.local_rank = rank;
      at.size = ranks;
      at.port = socket.port();
      at.listen_fd = rank == 0 ? ::dup(socket.fd()) : -1;  // the store closes it
      try {
        join_and_run(at, device, body);
      } catch (...) {
        outcomes[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  std::vector<std::exception_ptr> failures;
  for (const std::exception_ptr& outcome : outcomes) {
    if (outcome) {
      failures.push_back(outcome);
    }
  }
  if (!failures.empty()) {
    throw_cause(failures);
  }
}

}  // namespace bnlab
