// The programs `bnlab` and `bnlab-more`.
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "harness/cli/program.hpp"

namespace {

// Whether a tool waits for the process to end as others do: a sanitiser, or a profiler that is preloaded.
bool is_watched() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#else
  return std::getenv("LD_PRELOAD") != nullptr || std::getenv("CUDA_INJECTION64_PATH") != nullptr;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const int code = bnlab::run_program(argc, argv);
  if (is_watched()) return code;
  std::cout.flush();
  std::fflush(nullptr);
  std::quick_exit(code);  // LibTorch would take its tables apart, which is a third of a short run
}
