// How many kernels work would take on a GPU, counted on whichever device it is done: the functions of
// strategies/kernels say what is one launch there, and tensor operations count as one each
// (counting/step_cost.cpp).
#pragma once

#include <cstdint>

namespace bnlab {

struct KernelCount {
  inline static thread_local int64_t launches = 0;  // by this thread
  inline static thread_local int depth = 0;  // above 0 inside what is counted already, or not to be counted
};

// What is done while this lives is no kernel of the strategy's: a collective, work on the host.
class Uncounted {
 public:
  Uncounted() { ++KernelCount::depth; }
  ~Uncounted() { --KernelCount::depth; }
  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;
};

// What is done while this lives is one launch on a GPU, whatever it is made of here.
class OneKernel {
 public:
  OneKernel() { KernelCount::launches += KernelCount::depth == 1 ? 1 : 0; }

 private:
  Uncounted inside_;  // from before the count on
};

}  // namespace bnlab
