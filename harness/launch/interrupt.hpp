// Ctrl-C and its like (SIGINT, SIGTERM, SIGHUP): noticed, not obeyed at once, so that children are
// stopped and records stay whole.
#pragma once

#include <signal.h>

#include <array>

namespace bnlab {

// While one lives, these signals only raise a flag; before and after, they do what they did.
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
