// bnlab launch: a program of the user's as several ranks on this machine.
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/launch/start_program.hpp"

namespace bnlab {
namespace {

struct AskedProgram : ProgramRequest {
  void describe(Arguments& option) {
    option("--ranks N", ranks, "How many ranks; each has a GPU of its own, if there are any")
        .from(1, kMostAtOnce)
        .needed();
    option("--threads N", threads,
           "Threads of each rank. Default: OMP_NUM_THREADS of the environment, else its share of the cores")
        .from(1, kMostAtOnce);
    option("PROGRAM", words, "The program and its arguments, behind -- where some of these are options");
  }
};

int start(const AskedProgram& asked) {
  return start_program(asked);
}

const Command launch_command("launch", {Heading::this_machine, 3},
                             "Start a program of your own as several ranks on this machine",
                             "  bnlab launch --ranks 2 -- ./program --its options\n"
                             "  bnlab launch --ranks 4 .venv/bin/python train.py",
                             start);

}  // namespace
}  // namespace bnlab
