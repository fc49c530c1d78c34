#include "harness/launch/interrupt_watch.hpp"

namespace bnlab {
namespace {

volatile sig_atomic_t interrupt_raised = 0;

}  // namespace

InterruptWatch::InterruptWatch() {
  interrupt_raised = 0;
  struct sigaction action{};
  action.sa_handler = [](int) { interrupt_raised = 1; };
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
  return interrupt_raised != 0;
}

}  // namespace bnlab
