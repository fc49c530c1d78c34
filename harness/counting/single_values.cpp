#include "harness/counting/single_values.hpp"

#include "harness/built_network.hpp"
#include "harness/communicator/counting_communicator.hpp"
#include "harness/models/model_facts.hpp"
#include "harness/models/site_values.hpp"
#include "harness/one_site.hpp"
#include "harness/support/error.hpp"
#include "harness/tasks/task_facts.hpp"

namespace bnlab {
namespace {

// What the strategy says of a training step at the site; "" where it takes it.
std::string said_at(const SiteValues& site, const Json& strategy, const std::vector<int64_t>& samples) {
  constexpr int64_t kSteps = 1000;
  Ledger ledger;
  CountingCommunicator alone(1, ledger);
  const Towers towers(samples, 1, 0);
  try {
    BuiltNetwork built(strategy,
                       {.statistics = alone, .host = alone, .steps = kSteps, .samples_per_tower = samples},
                       [&](LayerMaker& layers) {
                         return std::make_shared<OneSite>(layers.norm({site.name, site.channels}));
                       });
    built.forward({at::zeros({towers.local_samples(), site.channels, 1, 1}), {}, towers}, {0, kSteps},
                  Mode::train);
    return "";
  } catch (const Error& error) {
    return error.kind() == Error::Kind::refused ? error.what() : "";
  } catch (const std::exception&) {
    return "";  // the run itself will tell
  }
}

}  // namespace

std::string single_value_refusal(const RunSpec& run) {
  const ImageSizes sizes = facts_of<TaskFacts>(run.task).image_sizes(run.task);  // training's first
  if (sizes.empty() || labels_clips(run.task)) return "";
  const std::vector<int64_t> samples = run.samples_per_pass();
  const auto said = [&](const Json& model, const std::vector<int64_t>& per_tower) {
    std::string first;
    for (const SiteValues& site : site_values(model, sizes.front()))
      if (site.values == 1 && first.empty()) first = said_at(site, run.strategy, per_tower);
    return first;
  };
  const std::string refusal = said(run.model, samples);
  if (refusal.empty()) return "";
  std::vector<std::string> cures;
  if (said(run.model, std::vector<int64_t>(samples.size(), 2)).empty()) {
    if (samples.size() > 1) cures.emplace_back("`sync`");
    cures.push_back(std::string("two images per tower") + (run.accumulate > 1 ? " and pass" : ""));
  }
  for (const Parameter& option : find_registered(ModelFacts::kFamily, run.model.at("name"))->parameters()) {
    if (option.kind != Parameter::Kind::boolean || option.list) continue;
    Json other = run.model;
    other[option.name] = !other.at(option.name).get<bool>();
    if (said(other, samples).empty()) cures.push_back(shown(option.name) + ": " + shown(other[option.name]));
  }
  if (cures.size() > 1) cures.back() = "or " + cures.back();
  return refusal + (cures.empty() ? "" : "; use " + joined(cures));
}

}  // namespace bnlab
