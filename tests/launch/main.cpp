// The tests' own main: the launcher starts ranks as `PROGRAM rank --job FILE`, and here the program is this
// executable, whose run_rank is the fake of fake_ranks.cpp.
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>

#include "harness/cli/program.hpp"

int main(int argc, char** argv) {
  if (argc > 1 && std::strncmp(argv[1], "--gtest", 7) != 0) return bnlab::run_program(argc, argv);
  std::signal(SIGINT, SIG_DFL);  // a shell lets what it starts in the background ignore interrupts
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
