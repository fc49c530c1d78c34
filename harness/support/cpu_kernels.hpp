// The instruction set that the CPU kernels of strategies/ use, for the record. The kernels register
// themselves when the program starts, so that harness needs nothing of strategies/ to be linked.
#pragma once

#include <string>

namespace bnlab {

class CpuKernels {
 public:
  using Level = std::string (*)();

  explicit CpuKernels(Level level) { registered() = level; }

  // "avx2", which BNLAB_CPU_LEVEL lowers; "none" in a program without these kernels.
  static std::string level() { return registered() == nullptr ? "none" : registered()(); }

 private:
  static Level& registered() {
    static Level level = nullptr;
    return level;
  }
};

}  // namespace bnlab
