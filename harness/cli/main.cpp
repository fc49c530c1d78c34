// The programs `bnlab` and `bnlab-more`.
#include "harness/cli/run_program.hpp"

int main(int argc, char** argv) {
  return bnlab::run_program(argc, argv);
}
