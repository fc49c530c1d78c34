// What work computes and moves, counted by its tensor operations: for the floor below which no device makes
// it.
#pragma once

#include <functional>

namespace bnlab {

struct Operations {
  double flops = 0;         // convolutions and matrix products; a multiplication and an addition are two
  double matrix_bytes = 0;  // what these read and write
  double other_bytes = 0;   // what all else reads and writes, norm sites among it
};

// Of this thread, on the CPU. The sweeps of norm sites are no operations of LibTorch: they are known by the
// tensors that they make, y and dx, for which they move eight (3 forward, 5 backward:
// harness/probe/sites.cpp).
Operations operations_of(const std::function<void()>& work);

}  // namespace bnlab
