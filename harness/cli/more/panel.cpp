// bnlab panel: tiny runs that show whether this build computes what the committed numbers say.
#include "harness/numerics/panel.hpp"

#include <iostream>

#include "harness/cli/arguments.hpp"
#include "harness/cli/more/more.hpp"
#include "harness/cli/program.hpp"
#include "harness/panel/measure.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

struct PanelRequest {
  std::vector<std::string> names;
  std::string into;
  bool json = false;

  void describe(Arguments& option) {
    option("[ENTRY]", names, "Entries of harness/numerics/entries.json; default: all");
    option("--into FILE", into, "Write the numbers that differ into the file of the committed ones");
    option("--json", json, "Print the numbers as JSON, without a verdict");
  }
};

// As values.json has them: an entry's conditions and its numbers on a line each.
std::string written(const Json& all) {
  std::string text = "{";
  for (const auto& [name, entry] : all.items()) {
    text += (text.size() == 1 ? "\n" : ",\n") + Json(name).dump() +
            ": {\n  \"stands_for\": " + entry.at("stands_for").dump() +
            ",\n  \"values\": " + entry.at("values").dump() + "}";
  }
  return text + "\n}\n";
}

struct Measured {
  Json values;  // null where this build cannot make the run
  std::vector<std::string> differing;
};

Measured measured(const PanelEntry& entry) {
  Measured found;
  std::string why;
  if (const auto values = measure(entry, why)) {
    found.values = *values;
    found.differing = panel_differences(entry, *values);
  } else {
    std::cerr << entry.name << ": not made: " << why << "\n";
  }
  return found;
}

int run_panel(const PanelRequest& request) {
  std::vector<PanelEntry> entries;
  for (const std::string& name : request.names) entries.push_back(panel_entry(name));
  if (request.names.empty()) entries = panel();
  Json values = Json::object(), kept = Json::object();
  size_t differing = 0, made = 0;
  for (const PanelEntry& entry : entries) {
    const Measured now = measured(entry);
    if (now.values.is_null()) continue;
    ++made;
    values[entry.name] = now.values;
    differing += now.differing.empty() ? 0 : 1;
    if (!request.json) {
      std::cout << entry.name << ": " << (now.differing.empty() ? "ok" : joined(now.differing, "; "))
                << std::endl;
    }
  }
  if (request.json) std::cout << values.dump(1) << "\n";
  if (!request.into.empty()) {
    for (const PanelEntry& entry : panel()) {
      const Json before = committed_panel().value(entry.name, Json());
      const bool made_now = values.contains(entry.name);
      if (before.is_null() && !made_now) continue;
      // Numbers that agree stay as they are, to the digit: their hash is what records name.
      const bool anew =
          before.is_null() || (made_now && !panel_differences(entry, values.at(entry.name)).empty());
      if (anew && values.at(entry.name).contains("outcome")) {
        throw Error(Error::Kind::data, "the run of entry \"" + entry.name + "\" did not end well: " +
                                           values.at(entry.name).at("outcome").get<std::string>() +
                                           "; nothing was written");
      }
      kept[entry.name] = {{"stands_for", stands_for(entry)},
                          {"values", anew ? values.at(entry.name) : before.at("values")}};
    }
    write_atomically(request.into, written(kept));
    std::cerr << "wrote " << request.into << "; records that name one of the " << differing
              << " entries that changed are stale once the program is built again\n";
    return exit_code::kOk;
  }
  std::cerr << made - differing << " of " << made << " entries of the panel compute what is committed";
  if (made < entries.size()) std::cerr << "; " << entries.size() - made << " could not be made";
  std::cerr << "\n";
  return differing == 0 ? exit_code::kOk : exit_code::kFailed;
}

const Command panel_command(more::named("panel"),
                            "  bnlab panel                                      all, in about ten seconds\n"
                            "  bnlab panel sync \"sync stopped\"                  two of them\n"
                            "  bnlab panel --into harness/numerics/values.json  after a change that is meant",
                            run_panel);

}  // namespace
}  // namespace bnlab
