// What else this machine does while a process measures times.
#pragma once

#include <ctime>
#include <fstream>
#include <string>

#include <unistd.h>

namespace bnlab {

// How the cores of this machine have spent their time, summed over the cores, in seconds since the machine
// started. All 0 where there is no /proc/stat.
struct CoreTime {
  double busy = 0;   // with processes of this machine
  double steal = 0;  // with other machines on the same host, while one here would have run
  double idle = 0;

  CoreTime operator-(const CoreTime& other) const {
    return {busy - other.busy, steal - other.steal, idle - other.idle};
  }
};

inline CoreTime core_time() {
  std::ifstream stat("/proc/stat");
  std::string cpu;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  stat >> cpu >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  const auto second = static_cast<double>(sysconf(_SC_CLK_TCK));
  return {(user + nice + system + irq + softirq) / second, steal / second, (idle + iowait) / second};
}

// The time that the threads of this process have computed, in seconds.
inline double own_core_time() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

// How many threads wanted a core in the last minute, on average.
inline double load_average() {
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  return load;
}

}  // namespace bnlab
