// bnlab explain: one strategy, model, task, optimizer or loss; for a strategy also what a training step of it
// exchanges, counted on a model, and how many kernels a norm site takes on a GPU.
#include <filesystem>
#include <iostream>
#include <regex>
#include <tuple>
#include <variant>

#include "harness/cli/about.hpp"
#include "harness/cli/network_screen.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/components/other_names.hpp"
#include "harness/components/registry.hpp"
#include "harness/counting/step_cost.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/models/model_facts.hpp"
#include "harness/support/error.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

constexpr const char* kStrategy = "strategy";
constexpr int64_t kClasses = 5;  // they show in the gradients only

struct ExplainRequest {
  std::string component;
  std::string model = "unet";
  StepCase step{.towers = 8, .batch_per_tower = 2, .ranks = 2, .classes = kClasses};
  std::string size = "64x64";
  bool json = false;

  void describe(Arguments& option) {
    option("NAME", component, "What a spec can name, or a JSON object with parameters too");
    option("--model NAME", model,
           "Model whose training step is counted: a name, or a folder of bnlab.export");
    option("--towers N", step.towers, "Units of batch-norm statistics").from(1, kMostAtOnce);
    option("--batch-per-tower N", step.batch_per_tower, "Images per tower").from(1, kMostAtOnce);
    option("--ranks N", step.ranks, "Processes, which must divide the towers").from(1, kMostAtOnce);
    option("--size HxW", size, "Height and width of the images in pixels");
    option("--json", json, "Print JSON");
  }
};

// The family that has an entry of this name.
std::string family_of(const std::string& name) {
  std::vector<std::string> known;
  std::string answer;
  for (const Family& family : families()) {
    if (find_registered(family.name, name) != nullptr) return family.name;
    const auto names = registered_names(family.name);
    known.insert(known.end(), names.begin(), names.end());
    if (answer.empty()) answer = answer_to_other_name(family.name, name);
  }
  throw Error(Error::Kind::usage, "there is no " + shown(name) + " to explain" +
                                      (answer.empty() ? component_suggestion(name, known) : answer));
}

std::pair<int64_t, int64_t> read_size(const std::string& text) {
  static const std::regex form("([1-9][0-9]{0,8})x([1-9][0-9]{0,8})");
  if (std::smatch size; std::regex_match(text, size, form)) return {std::stoll(size[1]), std::stoll(size[2])};
  throw Error(Error::Kind::usage, "--size: expected HEIGHTxWIDTH in pixels, such as 64x64, got " + text);
}

std::string amount(int64_t count, const std::string& unit) {
  return std::to_string(count) + " " + unit + (count == 1 ? "" : "s");
}

std::string setting(const ExplainRequest& request) {
  return "one training step of " + request.model + ", " + amount(request.step.towers, "tower") + " x " +
         amount(request.step.batch_per_tower, "image") + " of " + request.size + ", on " +
         amount(request.step.ranks, "rank");
}

std::string cost_text(const StepCost& cost) {
  std::string text = cost.exchanges.empty() ? "        statistics: nothing is exchanged\n" : "";
  for (const StepCost::Exchange& exchange : cost.exchanges) {
    text += "        " + exchange.purpose + ": " + amount(exchange.collectives, "collective") + ", " +
            amount(exchange.bytes, "byte") + "\n";
  }
  text += "        kernels of a norm site with its ReLU on a GPU, collectives apart: about " +
          std::to_string(cost.forward_kernels) + " forward, " + std::to_string(cost.backward_kernels) +
          " backward\n";
  text += "        gradients: all parameters once, " + amount(cost.gradient_bytes, "byte") + "\n";
  for (const std::string& note : cost.notes) text += wrapped(note, 8);
  return text;
}

Json cost_json(const StepCost& cost) {
  Json exchanges = Json::object();
  for (const StepCost::Exchange& exchange : cost.exchanges)
    exchanges[exchange.purpose] = {{"collectives", exchange.collectives}, {"bytes", exchange.bytes}};
  return {{"norm_sites", cost.norm_sites},
          {"exchanges", exchanges},
          {"site_kernels", {{"forward", cost.forward_kernels}, {"backward", cost.backward_kernels}}},
          {"gradient_bytes", cost.gradient_bytes},
          {"notes", cost.notes}};
}

// A folder that bnlab.export wrote stands for the network in it.
std::string named_model(const std::string& text) {
  const bool exported =
      find_registered("model", text) == nullptr && std::filesystem::exists(text + "/graph.json");
  return exported ? Json{{"name", "exported"}, {"file", text}}.dump() : text;
}

// What a training step of the strategy exchanges; where the strategy refuses the towers or the model, its
// message.
std::variant<StepCost, std::string> count(const ExplainRequest& request, const Json& strategy) {
  StepCase step = request.step;
  step.strategy = strategy;
  step.model = resolved_component("explain", "model", named_model(request.model));
  if (const int64_t own = facts_of<ModelFacts>(step.model).classes(step.model); own > 0) step.classes = own;
  std::tie(step.height, step.width) = read_size(request.size);
  try {
    return count_step(step);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::refused) throw;
    return error.what();
  } catch (const std::exception& error) {  // LibTorch's exceptions are not included here
    const std::string what = error.what();
    const auto says = [&](const char* part) { return what.find(part) != std::string::npos; };
    if (!says("allocate memory") && !says("overflow") && !says("bad_alloc")) throw;
    throw Error(Error::Kind::usage, "--size " + request.size + ": the memory of this machine does not hold " +
                                        setting(request) + "; choose less");
  }
}

// Where a tower's statistics are made of the fewest values.
std::string poorest_text(const SiteValues& site, int64_t batch_per_tower) {
  return "        fewest values per channel at " + site.name + ": " + std::to_string(site.values) +
         " of an image, " + std::to_string(site.values * batch_per_tower) + " of a tower\n";
}

int explain(const ExplainRequest& request) {
  const Json given = read_component(request.component);
  const std::string name = given.is_object() ? given["name"] : given;
  const std::string family = family_of(name);
  // A name alone asks for the parameters, of which some may have no default.
  const Json chosen = family == kStrategy || given.is_object()
                          ? resolved_component("explain", family, request.component)
                          : Json();
  const About& about = *find_registered(family, name);
  Json json = about_json(about);
  json["family"] = family;
  std::string text = about_text(about, given.is_object() ? given : Json::object());
  if (family == kStrategy) {
    const auto [height, width] = read_size(request.size);
    const Json model = resolved_component("explain", "model", named_model(request.model));
    const NetworkScreen screen = network_screen(model, {height, width}, request.step.batch_per_tower);
    if (!screen.json.is_null()) json["network"] = screen.json;
    if (!request.json) std::cout << screen.text << std::flush;  // the whole network takes longer to count
    const auto counted = count(request, chosen);
    const auto* cost = std::get_if<StepCost>(&counted);
    json["chosen"] = chosen;
    json["step"] = cost != nullptr ? cost_json(*cost) : Json{{"refused", std::get<std::string>(counted)}};
    text += "    " + setting(request) +
            (cost != nullptr
                 ? ", " + amount(cost->norm_sites, "norm site") + ", by one rank:\n" + cost_text(*cost)
                 : ":\n" + wrapped("refused: " + std::get<std::string>(counted), 8));
    const std::vector<SiteValues> sites = site_values(model, {height, width});
    if (const SiteValues* poorest = poorest_of(sites)) {
      text += poorest_text(*poorest, request.step.batch_per_tower);
      json["step"]["poorest"] = {{"site", poorest->name}, {"values_per_image", poorest->values}};
    }
  }
  std::cout << (request.json ? json.dump(2) + "\n" : text);
  return exit_code::kOk;
}

const Command explain_command("explain", {Heading::start_here, 4},
                              "Explain what a strategy computes, takes, exchanges and cannot do",
                              "  bnlab explain sync\n"
                              "  bnlab explain sync --towers 16 --batch-per-tower 1 --ranks 4\n"
                              "  bnlab explain '{\"name\": \"sync\", \"group_size\": 2}' --json",
                              explain);

}  // namespace
}  // namespace bnlab
