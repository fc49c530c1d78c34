// bnlab launch: a program of the user's as several ranks on this machine.
#include "harness/cli/program.hpp"
#include "harness/launch/start_program.hpp"

namespace bnlab {

void add_launch(Program& program) {
  auto [command, request] =
      add_command(program, "launch", "Start a program of your own as several ranks on this machine",
                  "  bnlab launch --ranks 2 -- ./program --its options\n"
                  "  bnlab launch --ranks 4 .venv/bin/python train.py",
                  start_program);
  command.add_option("--ranks", request.ranks, "How many ranks; each has a GPU of its own, if there are any")
      ->required()
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  command
      .add_option(
          "--threads", request.threads,
          "Threads of each rank. Default: OMP_NUM_THREADS of the environment, else its share of the cores")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  command
      .add_option("PROGRAM", request.words,
                  "The program and its arguments, behind -- where some of these are options")
      ->required();
}

}  // namespace bnlab
