// The program `bnlab`: its command line, its commands, its exit codes.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "harness/cli/run_program.hpp"

namespace bnlab {

namespace exit_code {
constexpr int kOk = 0;
constexpr int kFailed = 1;       // some runs failed or some files are damaged; the others went on
constexpr int kUsage = 2;        // the command line or the spec cannot be done; nothing was started
constexpr int kEnvironment = 3;  // the environment lacks something
constexpr int kOthers = 75;      // the rest belongs to other processes
constexpr int kInterrupted = 130;
}  // namespace exit_code

std::string program_version();  // "bnlab 2.0.0 (1f3a9c2)"
std::string exit_codes_text();

// The program while its command line is being understood.
struct Program {
  CLI::App app;
  std::string typed;            // the command line, quoted where a shell needs it
  std::function<int()> action;  // of the chosen command
};

struct NamedCommand {
  const char* name;
  const char* summary;
};

// Adds a command, whose help says what it is and then `examples`, one per line. The options that it is then
// given fill in the request on which it acts if it is chosen.
template <class Request>
std::pair<CLI::App&, Request&> add_command(Program& program, const NamedCommand& named, const char* examples,
                                           int (*act)(const Request&)) {
  CLI::App& command = *program.app.add_subcommand(named.name, named.summary)->group("Commands");
  command.footer(examples);
  const auto request = std::make_shared<Request>();
  command.callback([&program, request, act] { program.action = [request, act] { return act(*request); }; });
  return {command, *request};
}
template <class Request>
std::pair<CLI::App&, Request&> add_command(Program& program, const char* name, const char* summary,
                                           const char* examples, int (*act)(const Request&)) {
  return add_command(program, {name, summary}, examples, act);
}

// One per file.
void add_run(Program& program);
void add_plan(Program& program);
void add_status(Program& program);
void add_watch(Program& program);
void add_report(Program& program);
void add_answers(Program& program);
void add_compare(Program& program);
void add_export(Program& program);
void add_keep(Program& program);
void add_pack(Program& program);
void add_check(Program& program);
void add_merge(Program& program);
void add_confirm(Program& program);
void add_evaluate(Program& program);
void add_diagnose(Program& program);
void add_predict(Program& program);
void add_list(Program& program);
void add_forward(Program& program);
void add_explain(Program& program);
void add_doctor(Program& program);
void add_labels(Program& program);
void add_launch(Program& program);
void add_init(Program& program);
void add_schema(Program& program);
void add_completion(Program& program);
void add_man(Program& program);
void add_rank(Program& program);

// The commands of bnlab-more: in that program (more/add_more.cpp), and as names in `bnlab` (elsewhere.cpp).
void add_more(Program& program);
// The exit code of a command line that this program leaves to bnlab-more.
std::optional<int> answered_elsewhere(const std::vector<std::string>& words);

// The commands of the program and their options as the command line declares them, for the manual and for
// shells.
struct OptionText {
  std::string name;   // "--ranks", or "SPEC" for an argument without a dash
  std::string value;  // "N"; empty for a flag and an argument
  std::string help;

  bool positional() const { return name.front() != '-'; }
};

struct CommandText {
  std::string name, summary, examples;
  std::vector<OptionText> options;
};

// Those that help lists, in its order.
std::vector<CommandText> commands_of(const CLI::App& app);

}  // namespace bnlab
