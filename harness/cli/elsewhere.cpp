// The commands of bnlab-more in `bnlab`: their names, and how that program takes over.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>

#include "harness/cli/more/more.hpp"

namespace bnlab {
namespace {

bool is_of_more(const std::string& word) {
  return std::ranges::any_of(more::kAll, [&](const NamedCommand& command) { return word == command.name; });
}

}  // namespace

void add_more(Program& program) {
  for (const auto& [name, summary] : more::kAll) program.app.add_subcommand(name, summary)->group("Commands");
}

std::optional<int> answered_elsewhere(const std::vector<std::string>& words) {
  if (words.empty()) return std::nullopt;
  const std::string& command = words.front();
  const bool of_all = command == "man" || command == "completion";  // with the options of each command
  if (!is_of_more(command) && !of_all) return std::nullopt;
  const auto program =
      std::filesystem::read_symlink("/proc/self/exe").replace_filename("bnlab-more").string();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execv(program.c_str(), argv.data());  // which returns only where there is no such program
  if (of_all) return std::nullopt;
  std::cerr << "bnlab: " << command << " is a command of bnlab-more, which is not built here; "
            << "scripts/build.sh release bnlab-more builds it in about two minutes\n";
  return exit_code::kEnvironment;
}

}  // namespace bnlab
