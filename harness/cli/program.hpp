// The program `bnlab`: its command line, its commands, its exit codes.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <string>

namespace bnlab {

namespace exit_code {
constexpr int kOk = 0;
constexpr int kFailed = 1;       // some runs failed; the matrix went on
constexpr int kUsage = 2;        // the command line or the spec cannot be done; nothing was started
constexpr int kEnvironment = 3;  // the environment lacks something
constexpr int kInterrupted = 130;
}  // namespace exit_code

// Runs the program on a command line and returns its exit code. Data goes to standard output, talk to
// standard error.
int run_program(int argc, const char* const* argv);

// The program while its command line is being understood.
struct Program {
  CLI::App app;
  std::string typed;            // the command line, quoted where a shell needs it
  std::function<int()> action;  // of the chosen command
};

// Adds a command. Its help starts with `examples`, one per line.
CLI::App* add_command(Program& program, const std::string& name, const std::string& summary,
                      const std::string& examples);

// One per file; each sets program.action if its command is chosen.
void add_run(Program& program);
void add_plan(Program& program);
void add_status(Program& program);
void add_report(Program& program);
void add_evaluate(Program& program);
void add_list(Program& program);
void add_layer(Program& program);
void add_verify(Program& program);
void add_explain(Program& program);
void add_doctor(Program& program);
void add_rank(Program& program);

}  // namespace bnlab
