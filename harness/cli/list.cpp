// bnlab list: what specs can name.
#include <algorithm>
#include <iostream>

#include "harness/cli/about.hpp"
#include "harness/cli/arguments.hpp"
#include "harness/cli/program.hpp"
#include "harness/components/registry.hpp"
#include "harness/report/report.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

struct ListRequest {
  std::string family;
  std::string format;
  std::string into;
  bool details = false;
  bool json = false;

  void describe(Arguments& option) {
    option("FAMILY", family,
           "Kind of names: strategies, models, backbones, tasks, augmentations, optimizers or losses");
    option("--json", json, "Print JSON").not_with({"--format", "--into", "--long"});
    option("--format FORMAT", format, "Format: text, markdown or json").one_of({"text", "markdown", "json"});
    option("--into FILE", into,
           "Put the list into a file, in Markdown, between the lines <!-- table:FAMILY --> and <!-- end -->");
    option("--long", details, "Show formulas, sources and parameters, too").not_with({"--into"});
  }
};

std::string text_of(const Entries& entries, const ListRequest& request) {
  if (request.json || request.format == "json")
    return Json(mapped(entries, [](const auto& entry) { return about_json(entry.second); })).dump(2) + "\n";
  if (request.format == "markdown" || (request.format.empty() && !request.into.empty()))
    return entries_markdown(entries);
  return request.details
             ? joined(mapped(entries, [](const auto& entry) { return about_text(entry.second); }), "")
             : entries_text(entries);
}

std::vector<std::string> plurals() {
  return mapped(families(), [](const Family& family) { return std::string(family.plural); });
}

// By its name, or by that of one entry: "strategies", "strategy".
Family family_named(const std::string& name) {
  const auto found = std::ranges::find_if(
      families(), [&](const Family& each) { return each.plural == name || each.name == name; });
  if (found == families().end()) {
    throw Error(Error::Kind::usage, name + ": no family of entries; expected one of " + joined(plurals()) +
                                        did_you_mean(name, plurals()));
  }
  return *found;
}

int list(const ListRequest& request) {
  if (request.details && !request.format.empty() && request.format != "text") {
    throw Error(Error::Kind::usage,
                "--long: " + request.format + " has all of it; --long is of the text, without --format");
  }
  const Family family = family_named(request.family);
  const std::string text = text_of(registered(family.name), request);
  if (request.into.empty()) {
    std::cout << text;
  } else {
    replace_between_markers(request.into, {{std::string("table:") + family.plural, text}});
    std::cerr << "wrote the list of " << family.plural << " into " << request.into << "\n";
  }
  return exit_code::kOk;
}

const Command list_command("list", {Heading::strategies, 1}, "List what a spec can name, one line each",
                           "  bnlab list strategies\n"
                           "  bnlab list tasks --long\n"
                           "  bnlab list models --json\n"
                           "  bnlab list strategies --into strategies/README.md",
                           list);

}  // namespace
}  // namespace bnlab
