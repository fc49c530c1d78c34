// A communicator around a real one, whose every exchange takes longer: a slower network than there is, for
// tests and for predictions that have to hold there. Only for CPU tensors, since the calling thread does the
// waiting.
#include <torch/types.h>

#include <chrono>
#include <thread>
#include <utility>

#include "harness/communicator/rendezvous.hpp"
#include "harness/communicator/world_parts.hpp"

namespace bnlab {
namespace {

using DelayClock = std::chrono::steady_clock;

// Sleeping ends late by about this much; the rest of a wait looks at the clock, and lets others have the
// core.
constexpr std::chrono::microseconds kLateness{80};

void wait_until(DelayClock::time_point end) {
  if (end - DelayClock::now() > kLateness) std::this_thread::sleep_until(end - kLateness);
  while (DelayClock::now() < end) std::this_thread::yield();
}

class DelayedPending : public Pending {
 public:
  DelayedPending(std::unique_ptr<Pending> started, DelayClock::time_point end)
      : started_(std::move(started)), end_(end) {}
  void wait() override {
    started_->wait();
    wait_until(end_);
  }

 private:
  std::unique_ptr<Pending> started_;
  DelayClock::time_point end_;
};

class DelayedCommunicator : public Communicator {
 public:
  DelayedCommunicator(std::unique_ptr<Communicator> real, const ExchangeDelay& delay, Ledger& ledger,
                      std::string group)
      : Communicator(std::move(group), ledger), real_(std::move(real)), delay_(delay) {}
  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }

 private:
  // What the real one books is not read: this one has booked the call.
  static constexpr Purpose kBooked = Purpose::control;

  DelayClock::duration time_of(size_t bytes) const {
    const double by_bytes = delay_.bytes_per_s > 0 ? static_cast<double>(bytes) / delay_.bytes_per_s : 0;
    return std::chrono::duration_cast<DelayClock::duration>(
        std::chrono::duration<double>(delay_.seconds + by_bytes));
  }
  // Called when the real exchange is over on this rank: the others have come, too.
  void delay(const at::Tensor& t) const { wait_until(DelayClock::now() + time_of(t.nbytes())); }

  void do_all_gather(const at::Tensor& t, at::Tensor& gathered) override {
    gathered = real_->all_gather(t, kBooked);
    delay(t);
  }
  void do_all_reduce(at::Tensor& t) override {
    real_->all_reduce(t, kBooked);
    delay(t);
  }
  std::unique_ptr<Pending> do_all_reduce_async(at::Tensor& t) override {
    auto started = real_->all_reduce_async(t, kBooked);
    return std::make_unique<DelayedPending>(std::move(started), DelayClock::now() + time_of(t.nbytes()));
  }
  void do_broadcast(at::Tensor& t, int root) override {
    real_->broadcast(t, root, kBooked);
    delay(t);
  }
  void do_gather(const at::Tensor& t, at::Tensor& gathered, int root) override {
    gathered = real_->gather(t, root, kBooked);
    delay(t);
  }
  void do_reduce(at::Tensor& t, int root) override {
    real_->reduce(t, root, kBooked);
    delay(t);
  }
  void do_all_to_all(const at::Tensor& t, const std::vector<int64_t>& send,
                     const std::vector<int64_t>& receive, at::Tensor& received) override {
    received = real_->all_to_all(t, send, receive, kBooked);
    delay(t);
  }
  void do_barrier() override { real_->barrier(); }

  std::unique_ptr<Communicator> real_;
  ExchangeDelay delay_;
};

}  // namespace

std::unique_ptr<Communicator> make_delayed_communicator(std::unique_ptr<Communicator> real,
                                                        const ExchangeDelay& delay, Ledger& ledger,
                                                        std::string group) {
  return std::make_unique<DelayedCommunicator>(std::move(real), delay, ledger, std::move(group));
}

}  // namespace bnlab
