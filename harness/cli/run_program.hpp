// The whole program as one function, for `main` and for tests.
#pragma once

namespace bnlab {

// Runs the program on a command line and returns its exit code (exit_code of program.hpp). Data goes to
// standard output, talk to standard error.
int run_program(int argc, const char* const* argv);

}  // namespace bnlab
