// bnlab list: what specs can name.
#include <algorithm>
#include <iostream>
#include <memory>

#include "harness/cli/about.hpp"
#include "harness/cli/program.hpp"
#include "harness/components/registry.hpp"
#include "harness/records/report.hpp"

namespace bnlab {
namespace {

struct ListRequest {
  std::string family;
  std::string format;
  std::string into;
  bool details = false;
  bool json = false;
};

std::string details(const Entries& entries) {
  std::string text;
  for (const auto& [name, about] : entries) {
    text += about_text(about);
  }
  return text;
}

std::string as_json(const Entries& entries) {
  Json all = Json::array();
  for (const auto& [name, about] : entries) {
    all.push_back(about_json(about));
  }
  return all.dump(2) + "\n";
}

std::string text_of(const Entries& entries, const ListRequest& request) {
  if (request.json || request.format == "json") {
    return as_json(entries);
  }
  if (request.format == "markdown" || (request.format.empty() && !request.into.empty())) {
    return entries_markdown(entries);
  }
  return request.details ? details(entries) : entries_text(entries);
}

int list(const ListRequest& request) {
  const auto family = std::find_if(families().begin(), families().end(),
                                   [&](const Family& each) { return each.plural == request.family; });
  const std::string text = text_of(registered(family->name), request);
  if (request.into.empty()) {
    std::cout << text;
  } else {
    replace_between_markers(request.into, request.family, text);
    std::cerr << "wrote the list of " << request.family << " into " << request.into << "\n";
  }
  return exit_code::kOk;
}

}  // namespace

void add_list(Program& program) {
  CLI::App* command = add_command(program, "list", "What a spec can name, one line each",
                                  "  bnlab list strategies\n"
                                  "  bnlab list tasks --long\n"
                                  "  bnlab list models --json\n"
                                  "  bnlab list strategies --into strategies/README.md");
  const auto request = std::make_shared<ListRequest>();
  std::vector<std::string> names;
  for (const Family& family : families()) {
    names.emplace_back(family.plural);
  }
  command->add_option("FAMILY", request->family, "strategies, models, tasks, optimizers or losses")
      ->required()
      ->check(CLI::IsMember(names));
  CLI::Option* json = command->add_flag("--json", request->json, "As JSON");
  command->add_option("--format", request->format, "text, markdown or json")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "markdown", "json"}))
      ->excludes(json);
  CLI::Option* into =
      command
          ->add_option("--into", request->into,
                       "File with a line <!-- table:FAMILY -->: the list is put below it, in Markdown")
          ->type_name("FILE");
  command->add_flag("--long", request->details, "With formulas, sources and parameters")
      ->excludes(json)
      ->excludes(into);
  command->callback([&program, request] { program.action = [request] { return list(*request); }; });
}

}  // namespace bnlab
