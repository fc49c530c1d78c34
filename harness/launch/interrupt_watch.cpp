#include "harness/launch/interrupt_watch.hpp"

#include <atomic>

namespace bnlab {
namespace {

std::atomic<bool> interrupt_raised = false;  // free of locks: a signal handler may write it
static_assert(std::atomic<bool>::is_always_lock_free);

}  // namespace

InterruptWatch::InterruptWatch() {
  interrupt_raised = false;
  struct sigaction action{};
  action.sa_handler = [](int) { interrupt_raised = true; };
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN)  // nohup: an ignored hang-up stays ignored
      sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptWatch::~InterruptWatch() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

bool InterruptWatch::interrupted() const {
  return interrupt_raised;
}

}  // namespace bnlab
