// The program `bnlab`: its command line, its commands, its exit codes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/arguments.hpp"

namespace bnlab {

// Runs the program on a command line and returns its exit code. Data goes to standard output, talk to
// standard error.
int run_program(int argc, const char* const* argv);

namespace exit_code {
constexpr int kOk = 0;
constexpr int kFailed = 1;       // some runs failed or some files are damaged; the others went on
constexpr int kUsage = 2;        // the command line or the spec cannot be done; nothing was started
constexpr int kEnvironment = 3;  // the environment lacks something
constexpr int kOthers = 75;      // the rest belongs to other processes
constexpr int kInterrupted = 130;
}  // namespace exit_code

std::string program_version();  // "bnlab 2.0.0 (1f3a9c2)"

// What help and the manual say of the program as a whole.
struct ProgramTexts {
  const char *what, *examples, *exit_codes;
};
extern const ProgramTexts kProgramTexts;

// The headings of `bnlab --help`, in its order. Commands for programs, not for people, have none.
enum class Heading {
  start_here,
  experiments,
  results,
  trained_networks,
  strategies,
  cost,
  this_machine,
  none
};

struct CommandName {
  const char* name;
  std::pair<Heading, int> place;  // in help: the heading, and the place below it
  const char* summary;
};

// A command of the program. Its file registers it at its end:
//
//   const Command compare_command("compare", {Heading::experiments, 4}, "Compare two folders of results",
//                                 "  bnlab compare results/quickstart /tmp/colleague/quickstart",
//                                 compare_folders);
//
// where compare_folders takes `const Request&`, which describes what the command takes (arguments.hpp), and
// returns the exit code. Help, completion, the manual and messages follow from it.
class Command {
 public:
  // A request while its command line is being understood.
  struct Asked {
    Arguments arguments;
    std::function<int()> act = {};
  };

  template <class Request>
  Command(const char* name, std::pair<Heading, int> place, const char* summary, const char* examples,
          int (*act)(const Request&))
      : Command({name, place, summary}, examples, act) {}
  template <class Request>
  Command(const CommandName& named, const char* examples, int (*act)(const Request&))
      : Command(named, examples, [act](const Words& typed) {
          const auto request = std::make_shared<Request>();
          Asked asked{Arguments(typed), [request, act] { return act(*request); }};
          if constexpr (requires { request->describe(asked.arguments); }) request->describe(asked.arguments);
          return asked;
        }) {}
  // One of another program, whose name alone is known here.
  explicit Command(const CommandName& named) : Command(named, "", {}) {}

  std::string name, summary, examples;
  Heading heading;
  std::function<Asked(const Words& typed)> ask;  // empty where another program has the command

  // As declared, without a request that could take their values.
  Arguments arguments() const { return ask ? ask({}).arguments : Arguments(); }

 private:
  Command(const CommandName& named, const char* examples, std::function<Asked(const Words&)> ask);
};

// All but those for programs, in the order of help.
std::vector<Command> listed_commands();

}  // namespace bnlab
