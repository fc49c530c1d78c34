// Threads of a library that should not push others off their cores.
#pragma once

#include <sched.h>

namespace bnlab {

// While this lives, threads that the calling one starts are batch threads (SCHED_BATCH): they have their
// share of the cores, but when they wake where no core is free they take no running thread's place: they wait
// their turn. Does nothing where the calling thread has a policy of its own or the system refuses.
class StartsBatchThreads {
 public:
  StartsBatchThreads() : changed_(sched_getscheduler(0) == SCHED_OTHER && set(SCHED_BATCH)) {}
  StartsBatchThreads(const StartsBatchThreads&) = delete;
  StartsBatchThreads& operator=(const StartsBatchThreads&) = delete;
  ~StartsBatchThreads() {
    if (changed_) set(SCHED_OTHER);
  }

 private:
  static bool set(int policy) {
    const sched_param none{};
    return sched_setscheduler(0, policy, &none) == 0;
  }

  bool changed_;
};

}  // namespace bnlab
