// bnlab explain: one strategy, model, task, optimizer or loss; for a strategy also what a training step of it
// exchanges, counted on a model.
#include <array>
#include <charconv>
#include <iostream>
#include <memory>

#include "harness/cli/about.hpp"
#include "harness/cli/program.hpp"
#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "harness/experiment/mistakes.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/records/text_table.hpp"
#include "harness/training/step_cost.hpp"

namespace bnlab {
namespace {

constexpr const char* kStrategy = "strategy";
constexpr int64_t kClasses = 5;  // of the step that is counted; they show in the gradients only

struct ExplainRequest {
  std::string component;
  std::string model = "unet";
  int64_t towers = 8;
  int64_t batch_per_tower = 2;
  int ranks = 2;
  std::string size = "64x64";
  bool json = false;
};

// A component as the command line names it: `sync`, or `{"name": "sync", "route": "host"}`.
Json read_component(const std::string& text) {
  if (text.empty() || text.front() != '{') {
    return text;
  }
  const Json given = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!given.is_object() || !given.contains("name") || !given["name"].is_string()) {
    throw Error(Error::Kind::usage,
                "expected a name or a JSON object {\"name\": ..., its parameters}, got " + text);
  }
  return given;
}

Json resolved(const std::string& family, const std::string& text) {
  Mistakes mistakes("explain");
  Problems problems;
  const Json complete = resolve({component_key(family)}, {{family, read_component(text)}}, "", problems);
  mistakes.add(problems);
  mistakes.throw_if_any();
  return complete[family];
}

// The family that has an entry of this name.
std::string family_of(const std::string& name) {
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (find_registered(family.name, name) != nullptr) {
      return family.name;
    }
    const auto names = registered_names(family.name);
    known.insert(known.end(), names.begin(), names.end());
  }
  throw Error(Error::Kind::usage, "there is no " + shown(name) + " to explain" + suggestion(name, known));
}

std::array<int64_t, 2> read_size(const std::string& text) {
  std::array<int64_t, 2> size{};
  const char* const end = text.data() + text.size();
  const auto height = std::from_chars(text.data(), end, size[0]);
  if (height.ec == std::errc() && height.ptr != end && *height.ptr == 'x') {
    const auto width = std::from_chars(height.ptr + 1, end, size[1]);
    if (width.ec == std::errc() && width.ptr == end && size[0] > 0 && size[1] > 0) {
      return size;
    }
  }
  throw Error(Error::Kind::usage, "--size: expected HEIGHTxWIDTH in pixels, such as 64x64, got " + text);
}

StepCase step_case(const ExplainRequest& request, const Json& strategy) {
  const auto [height, width] = read_size(request.size);
  return {strategy,       resolved("model", request.model),
          request.towers, request.batch_per_tower,
          request.ranks,  height,
          width,          kClasses};
}

std::string amount(int64_t count, const std::string& unit) {
  return std::to_string(count) + " " + unit + (count == 1 ? "" : "s");
}

std::string setting(const ExplainRequest& request) {
  return "one training step of " + request.model + ", " + amount(request.towers, "tower") + " x " +
         amount(request.batch_per_tower, "image") + " of " + request.size + ", on " +
         amount(request.ranks, "rank");
}

std::string cost_text(const StepCost& cost) {
  std::string text = cost.exchanges.empty() ? "        statistics: nothing is exchanged\n" : "";
  for (const StepCost::Exchange& exchange : cost.exchanges) {
    text += "        " + exchange.purpose + ": " + amount(exchange.collectives, "collective") + ", " +
            amount(exchange.bytes, "byte") + "\n";
  }
  return text + "        gradients: all parameters once, " + amount(cost.gradient_bytes, "byte") + "\n";
}

Json cost_json(const StepCost& cost) {
  Json exchanges = Json::object();
  for (const StepCost::Exchange& exchange : cost.exchanges) {
    exchanges[exchange.purpose] = {{"collectives", exchange.collectives}, {"bytes", exchange.bytes}};
  }
  return {{"norm_sites", cost.norm_sites}, {"exchanges", exchanges}, {"gradient_bytes", cost.gradient_bytes}};
}

// A strategy may refuse the towers or the model; its message is then shown in place of the cost.
struct Counted {
  StepCost cost;
  std::string refusal;
};

Counted count(const StepCase& step) {
  try {
    return {count_step(step), ""};
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::refused) {
      throw;
    }
    return {{}, error.what()};
  }
}

int explain(const ExplainRequest& request) {
  const Json given = read_component(request.component);
  const std::string name = given.is_object() ? given["name"].get<std::string>() : given.get<std::string>();
  const std::string family = family_of(name);
  const Json chosen = resolved(family, request.component);
  const About& about = *find_registered(family, name);
  const bool is_strategy = family == kStrategy;
  Counted counted;
  if (is_strategy) {
    counted = count(step_case(request, chosen));
  }
  if (request.json) {
    Json json = about_json(about);
    json["family"] = family;
    if (is_strategy) {
      json["chosen"] = chosen;
      json["step"] = counted.refusal.empty() ? cost_json(counted.cost) : Json{{"refused", counted.refusal}};
    }
    std::cout << json.dump(2) << "\n";
    return exit_code::kOk;
  }
  std::cout << about_text(about, given.is_object() ? given : Json::object());
  if (is_strategy) {
    std::cout << "    " << setting(request)
              << (counted.refusal.empty() ? ", " + amount(counted.cost.norm_sites, "norm site") +
                                                ", by one rank:\n" + cost_text(counted.cost)
                                          : ":\n" + wrapped("refused: " + counted.refusal, 8));
  }
  return exit_code::kOk;
}

}  // namespace

void add_explain(Program& program) {
  CLI::App* command =
      add_command(program, "explain", "What a strategy computes, takes, exchanges and cannot do",
                  "  bnlab explain sync\n"
                  "  bnlab explain sync --towers 16 --batch-per-tower 1 --ranks 4\n"
                  "  bnlab explain '{\"name\": \"sync\", \"group_size\": 2}' --json");
  const auto request = std::make_shared<ExplainRequest>();
  command
      ->add_option("NAME", request->component, "What a spec can name, or a JSON object with parameters too")
      ->required();
  command->add_option("--model", request->model, "Model whose training step is counted")
      ->capture_default_str();
  command->add_option("--towers", request->towers, "Units of batch-norm statistics")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--batch-per-tower", request->batch_per_tower, "Images per tower")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--ranks", request->ranks, "Processes; must divide the towers")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--size", request->size, "Height and width of the images in pixels")
      ->type_name("HxW")
      ->capture_default_str();
  command->add_flag("--json", request->json, "As JSON");
  command->callback([&program, request] { program.action = [request] { return explain(*request); }; });
}

}  // namespace bnlab
