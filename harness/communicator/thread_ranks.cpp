#include "harness/communicator/thread_ranks.hpp"

#include <c10/core/AutogradState.h>
#include <torch/cuda.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "harness/communicator/host/network.hpp"
#include "harness/communicator/host/shared_gpus.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

// Whether this failure says no more than that another rank has gone.
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
  for (const std::exception_ptr& failure : failures)
    if (!is_consequence(failure)) std::rethrow_exception(failure);
  std::rethrow_exception(failures.front());
}

}  // namespace

void prepare_thread_ranks() {
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  if (gpus_are_shared())
    for (const auto& [name, value] : shared_gpu_settings())
      ::setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
}

// The threads, which wait between bodies. mutex_ guards the body and its number.
class ThreadRanks::Threads {
 public:
  // How long a rank that has failed waits for the others, which mostly fail alike.
  static constexpr std::chrono::milliseconds kWaitForOthers{200};

  Threads(int ranks, at::DeviceType device, Exchange exchange)
      : device_(device), exchange_(exchange), outcomes_(static_cast<size_t>(ranks)) {
    for (int rank = 0; ranks > 1 && rank < ranks; ++rank) threads_.emplace_back([this, rank] { work(rank); });
  }

  ~Threads() {
    start(nullptr);
    for (std::thread& thread : threads_) thread.join();
    if (single_) single_->shutdown();
  }

  int ranks() const { return static_cast<int>(outcomes_.size()); }

  void run(const std::function<void(World&)>& body) {
    if (ranks() == 1) {
      if (!single_) single_ = join_world({}, device_);
      body(*single_);
      return;
    }
    if (!joined_) socket_ = std::make_unique<LoopbackSocket>();
    start(&body);
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return running_ == 0; });
    std::vector<std::exception_ptr> failures;
    for (std::exception_ptr& outcome : outcomes_)
      if (outcome) failures.push_back(std::exchange(outcome, nullptr));
    const bool alike =
        failures.size() == outcomes_.size() && std::none_of(failures.begin(), failures.end(), is_consequence);
    joined_ = worlds_ == outcomes_.size() && (failures.empty() || (alike && !dropped_));
    if (!failures.empty()) throw_cause(failures);
  }

 private:
  void start(const std::function<void(World&)>* body) {
    {
      const std::lock_guard lock(mutex_);
      body_ = body;
      running_ = threads_.size();
      dropped_ = false;
      worlds_ = 0;
      ++body_number_;
    }
    started_.notify_all();
  }

  void work(int rank) {
    // The autograd thread of a GPU is one for all ranks on it: a backward pass that waits there for another
    // rank's would wait for ever.
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    std::unique_ptr<World> world;
    for (int64_t seen = 0;;) {
      std::unique_lock lock(mutex_);
      started_.wait(lock, [&] { return body_number_ > seen; });
      seen = body_number_;
      const auto* body = body_;
      const bool joins = !joined_;
      lock.unlock();
      if (body == nullptr) break;
      std::exception_ptr outcome;
      try {
        if (joins) {
          world = nullptr;
          world = join_world(rendezvous(rank), device_);
        }
        (*body)(*world);
      } catch (...) {
        outcome = std::current_exception();
      }
      lock.lock();
      outcomes_[static_cast<size_t>(rank)] = outcome;
      worlds_ += world != nullptr;
      if (--running_ == 0) {
        finished_.notify_all();
      } else if (outcome && !finished_.wait_for(lock, kWaitForOthers,
                                                [&] { return running_ == 0 || body_number_ > seen; })) {
        // The others wait in a collective. They lose contact at once, not after its timeout, if this rank
        // drops its world.
        dropped_ = true;
        lock.unlock();
        world = nullptr;
      }
    }
    if (world && joined_) world->shutdown();
  }

  Rendezvous rendezvous(int rank) const {
    Rendezvous at;
    at.rank = at.local_rank = rank;
    if (device_ == at::kCUDA && gpus_are_shared())
      at.local_rank %= std::max(1, static_cast<int>(torch::cuda::device_count()));
    at.size = ranks();
    at.exchange = exchange_;
    at.port = socket_->port();
    at.listen_fd = rank == 0 ? ::dup(socket_->fd()) : -1;  // the store closes it
    return at;
  }

  at::DeviceType device_;
  Exchange exchange_;
  std::unique_ptr<World> single_;  // a world of one
  std::vector<std::thread> threads_;
  std::unique_ptr<LoopbackSocket> socket_;
  std::mutex mutex_;
  std::condition_variable started_, finished_;
  const std::function<void(World&)>* body_ = nullptr;  // null: the end
  std::vector<std::exception_ptr> outcomes_;
  size_t running_ = 0;
  int64_t body_number_ = 0;
  size_t worlds_ = 0;     // ranks that held a world when they were through with this body
  bool dropped_ = false;  // whether a rank has dropped its world during this body
  bool joined_ = false;   // whether the ranks have a world in which they can go on
};

ThreadRanks::ThreadRanks(int ranks, at::DeviceType device, Exchange exchange)
    : threads_(std::make_unique<Threads>(ranks, device, exchange)) {}

ThreadRanks::~ThreadRanks() = default;

int ThreadRanks::ranks() const {
  return threads_->ranks();
}

void ThreadRanks::run(const std::function<void(World&)>& body) {
  threads_->run(body);
}

void on_thread_ranks(int ranks, at::DeviceType device, const std::function<void(World&)>& body,
                     Exchange exchange) {
  ThreadRanks(ranks, device, exchange).run(body);
}

}  // namespace bnlab
