// Ctrl-C and its like, where children have to be stopped first.
#pragma once

#include <signal.h>

#include <array>

namespace bnlab {

// While one lives, SIGINT, SIGTERM and SIGHUP only raise a flag, so that children are stopped and records
// stay whole. One at a time.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  bool interrupted() const;

 private:
  static constexpr std::array<int, 3> kSignals{SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace bnlab
