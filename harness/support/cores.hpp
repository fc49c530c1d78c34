// The cores of this machine.
#pragma once

#include <sched.h>

#include <algorithm>

namespace bnlab {

// Cores that a process may use, this one or another.
inline int usable_cores(pid_t process = 0) {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(process, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace bnlab
