#include "harness/communicator/roll_call.hpp"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "harness/communicator/world_parts.hpp"

namespace bnlab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kIdle{250}, kBusy{20};  // between two looks at the store
constexpr std::chrono::seconds kEndsIn{1};  // a thread whose store does not answer is left behind
constexpr const char *kCalled = "called", *kHeard = "heard";

std::string answer_key(int rank) {
  return "answer/" + std::to_string(rank);
}

}  // namespace

// The thread that answers, and what it shares with its owner, which may be gone before it.
class RollCall::Answering {
 public:
  Answering(const Rendezvous& at, std::function<std::string()> answer) : shared_(std::make_shared<Shared>()) {
    shared_->answer = std::move(answer);
    std::thread([at, shared = shared_] { answer_when_called(at, *shared); }).detach();
  }

  ~Answering() {
    std::unique_lock lock(shared_->mutex);
    shared_->answer = nullptr;  // so that a thread that is left behind touches nothing of the owner's
    shared_->changed.notify_all();
    shared_->changed.wait_for(lock, kEndsIn, [this] { return shared_->over; });
  }

  void wait(std::chrono::milliseconds patience) {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_for(lock, patience, [this] { return shared_->over; });
  }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<std::string()> answer;  // none: nobody wants it any more
    bool over = false;                    // the thread has come to its end
  };

  static void answer_when_called(const Rendezvous& at, Shared& shared) {
    try {
      const auto store = store_at(at);
      if (wait_for_key(*store, kCalled, kIdle, shared)) {
        publish_answer(*store, at.rank, shared);
        wait_for_key(*store, kHeard, kBusy, shared);
      }
    } catch (const std::exception&) {  // the store is lost, and with it who would ask
    }
    const std::lock_guard lock(shared.mutex);
    shared.over = true;
    shared.changed.notify_all();
  }

  static void publish_answer(c10d::Store& store, int rank, Shared& shared) {
    std::string told;
    {
      const std::lock_guard lock(shared.mutex);
      if (shared.answer == nullptr) return;
      told = shared.answer();
    }
    store.set(answer_key(rank), std::vector<uint8_t>(told.begin(), told.end()));
  }

  // Whether the key has come while the answer was wanted.
  static bool wait_for_key(c10d::Store& store, const char* key, std::chrono::milliseconds pause,
                           Shared& shared) {
    for (;;) {
      if (store.check({key})) return true;
      std::unique_lock lock(shared.mutex);
      if (shared.changed.wait_for(lock, pause, [&] { return shared.answer == nullptr; })) return false;
    }
  }

  std::shared_ptr<Shared> shared_;
};

RollCall::RollCall(const Rendezvous& at, std::function<std::string()> answer)
    : at_(at), answer_(std::move(answer)) {
  if (at_.rank > 0) answering_ = std::make_unique<Answering>(at_, answer_);
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
  if (answering_ != nullptr) answering_->wait(patience);
}

}  // namespace bnlab
