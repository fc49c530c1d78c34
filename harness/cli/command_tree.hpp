// The commands of the program and their options as the command line declares them, for the manual and for
// shells.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

namespace bnlab {

struct OptionText {
  std::string name;   // "--ranks", or "SPEC" for an argument without a dash
  std::string value;  // "N"; empty for a flag
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
