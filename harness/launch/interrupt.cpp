#include "harness/launch/interrupt.hpp"

namespace bnlab {
namespace {

volatile sig_atomic_t raised = 0;

void note_signal(int) {
  raised = 1;
}

}  // namespace

InterruptWatch::InterruptWatch() {
  raised = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) {  // nohup: an ignored hang-up stays ignored
      sigaction(kSignals[i], &action, nullptr);
    }
  }
}

InterruptWatch::~InterruptWatch() {
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], &before_[i], nullptr);
  }
}

bool InterruptWatch::interrupted() const {
  return raised != 0;
}

}  // namespace bnlab
