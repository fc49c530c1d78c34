// Stands for strategies/kernels/launch.cuh.
#pragma once

#include <cstdint>
#include <tuple>

#include "tests/emulation/device.hpp"

namespace bnlab::kernels::cuda {

constexpr int kBlockThreads = 256, kMaxSlices = 256;  // as on a GPU
constexpr int64_t kMinimumTickets = 1;                // no more than are asked for, so that too few are found
constexpr int64_t kSmallBytes = 4 << 10;              // so that some tensors are not

inline bool capturing() {
  return false;
}

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, const Arguments&... arguments) {
  const std::tuple<Parameters...> values(arguments...);
  emulation::run_grid(grid, block, sizeof(values), [&] { std::apply(kernel, values); });
}

}  // namespace bnlab::kernels::cuda
