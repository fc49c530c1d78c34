// bnlab list: what specs can name.
#include <iostream>
#include <map>
#include <memory>

#include "harness/cli/program.hpp"
#include "harness/registry.hpp"

namespace bnlab {
namespace {

const std::map<std::string, std::string> kFamilies{
    {"strategies", "strategy"}, {"models", "model"}, {"tasks", "task"}, {"optimizers", "optimizer"}};

Json as_json(const std::map<std::string, About>& entries) {
  Json all = Json::array();
  for (const auto& [name, about] : entries) {
    Json parameters = Json::array();
    for (const Parameter& parameter : about.parameters) {
      parameters.push_back({{"name", parameter.name},
                            {"default", parameter.required ? Json() : parameter.fallback},
                            {"required", parameter.required},
                            {"help", parameter.help}});
    }
    all.push_back(
        {{"name", name}, {"summary", about.summary}, {"source", about.source}, {"parameters", parameters}});
  }
  return all;
}

void print(const std::map<std::string, About>& entries) {
  for (const auto& [name, about] : entries) {
    std::cout << name << "\n    " << about.summary << "\n";
    if (!about.source.empty()) {
      std::cout << "    source: " << about.source << "\n";
    }
    for (const Parameter& parameter : about.parameters) {
      std::cout << "    " << parameter.name << " = "
                << (parameter.required ? "(needed)" : parameter.fallback.dump()) << "  " << parameter.help
                << "\n";
    }
  }
}

}  // namespace

void add_list(Program& program) {
  CLI::App* command =
      add_command(program, "list", "Strategies, models, tasks or optimizers that a spec can name",
                  "  bnlab list strategies\n"
                  "  bnlab list tasks --json");
  const auto family = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("FAMILY", *family, "strategies, models, tasks or optimizers")
      ->required()
      ->check(CLI::IsMember({"strategies", "models", "tasks", "optimizers"}));
  command->add_flag("--json", *json, "As JSON");
  command->callback([&program, family, json] {
    program.action = [family, json] {
      const auto& entries = registered(kFamilies.at(*family));
      if (*json) {
        std::cout << as_json(entries).dump(2) << "\n";
      } else {
        print(entries);
      }
      return exit_code::kOk;
    };
  });
}

}  // namespace bnlab
