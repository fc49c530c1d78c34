// The memory of this process that is in the machine's: its peak, per run also where a process makes several.
#pragma once

#include <malloc.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <mutex>
#include <string>

namespace bnlab {

// The largest resident set since the process started, or since the last reset.
inline int64_t peak_rss_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int64_t kilobytes = 0; word == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  rusage usage{};  // where there is no /proc
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<int64_t>(usage.ru_maxrss) * 1024;
}

// Gives free memory back to the kernel and makes what is left the peak. False where the kernel does not let a
// process do so; the peak is then one of its whole life.
inline bool reset_peak_rss() {
  static std::mutex
      one_at_a_time;  // beside another allocator, as of a sanitiser, the first call sets up glibc's
  {
    const std::lock_guard lock(one_at_a_time);
    malloc_trim(0);
  }
  std::ofstream peaks("/proc/self/clear_refs");
  return static_cast<bool>(peaks << "5" << std::flush);
}

}  // namespace bnlab
