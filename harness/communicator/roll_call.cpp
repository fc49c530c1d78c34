#include "harness/communicator/roll_call.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <stop_token>
#include <thread>

#include "harness/communicator/world_parts.hpp"

namespace bnlab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kIdle{500}, kBusy{20};  // between two looks at the store
constexpr const char *kCalled = "called", *kHeard = "heard";

std::string answer_key(int rank) {
  return "answer/" + std::to_string(rank);
}

}  // namespace

class RollCall::Answering {
 public:
  Answering(const Rendezvous& at, const std::function<std::string()>& answer)
      : thread_([this, at, answer](const std::stop_token& stop) { answer_when_called(at, answer, stop); }) {}

  void wait(std::chrono::milliseconds patience) const {
    for (const auto deadline = Clock::now() + patience; !over_ && Clock::now() < deadline;) {
      std::this_thread::sleep_for(kBusy);
    }
  }

 private:
  void answer_when_called(const Rendezvous& at, const std::function<std::string()>& answer,
                          const std::stop_token& stop) {
    try {
      const auto store = store_at(at);
      if (comes(*store, kCalled, kIdle, stop)) {
        const std::string told = answer();
        store->set(answer_key(at.rank), std::vector<uint8_t>(told.begin(), told.end()));
        comes(*store, kHeard, kBusy, stop);
      }
    } catch (const std::exception&) {  // the store is lost, and with it who would ask
    }
    over_ = true;
  }

  // Whether the key has come before the stop.
  bool comes(c10d::Store& store, const char* key, std::chrono::milliseconds pause,
             const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      if (store.check({key})) {
        return true;
      }
      stopped_.wait_for(lock, stop, pause, [] { return false; });
    }
    return false;
  }

  std::atomic<bool> over_ = false;
  std::mutex mutex_;
  std::condition_variable_any stopped_;
  std::jthread thread_;  // last, so that it ends first
};

RollCall::RollCall(const Rendezvous& at, std::function<std::string()> answer)
    : at_(at), answer_(std::move(answer)) {
  if (at_.rank > 0) {
    answering_ = std::make_unique<Answering>(at_, answer_);
  }
}

RollCall::~RollCall() = default;

std::vector<std::string> RollCall::call(std::chrono::milliseconds patience) {
  std::vector<std::string> answers(static_cast<size_t>(at_.size));
  answers.front() = answer_();
  try {
    const auto store = store_at(at_);
    store->set(kCalled, std::vector<uint8_t>{1});
    const auto deadline = Clock::now() + patience;
    const auto lacks_some = [&] { return std::ranges::any_of(answers, &std::string::empty); };
    while (lacks_some() && Clock::now() < deadline) {
      for (int rank = 1; rank < at_.size; ++rank) {
        std::string& answer = answers[static_cast<size_t>(rank)];
        if (answer.empty() && store->check({answer_key(rank)})) {
          const std::vector<uint8_t> told = store->get(answer_key(rank));
          answer.assign(told.begin(), told.end());
        }
      }
      std::this_thread::sleep_for(kBusy);
    }
    store->set(kHeard, std::vector<uint8_t>{1});
  } catch (const std::exception&) {  // what has come is told
  }
  return answers;
}

void RollCall::wait(std::chrono::milliseconds patience) const {
  if (answering_ != nullptr) {
    answering_->wait(patience);
  }
}

}  // namespace bnlab
