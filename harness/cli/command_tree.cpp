#include "harness/cli/command_tree.hpp"

namespace bnlab {

std::vector<CommandText> commands_of(const CLI::App& app) {
  std::vector<CommandText> commands;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_group().empty()) continue;  // for programs, not for people
    CommandText text{command->get_name(), command->get_description(), command->get_footer(), {}};
    for (const CLI::Option* option : command->get_options()) {
      const bool positional = option->get_lnames().empty();
      const std::string type = option->get_type_name();  // "J:POSITIVE": the name, and what is checked
      text.options.push_back({positional ? option->get_name() : "--" + option->get_lnames()[0],
                              option->get_items_expected_max() == 0 ? "" : type.substr(0, type.find(':')),
                              option->get_description()});
    }
    commands.push_back(std::move(text));
  }
  return commands;
}

}  // namespace bnlab
