// Entries of a library that nothing has called yet. They end the process and tell their name. Without the
// library's header, so that their signatures do not matter.
#pragma once

#include <string>

namespace simgpu {
[[noreturn]] void die(const std::string& what);
}
#define ABSENT(name)                                             \
  extern "C" __attribute__((visibility("default"))) int name() { \
    simgpu::die(#name " is not simulated");                      \
  }
