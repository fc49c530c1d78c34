#include "harness/cli/network_screen.hpp"

#include <algorithm>
#include <filesystem>

#include "harness/cli/options.hpp"
#include "harness/counting/step_cost.hpp"
#include "harness/models/model_facts.hpp"
#include "harness/prediction/clusters.hpp"
#include "harness/prediction/step.hpp"
#include "harness/prediction/validation.hpp"
#include "harness/support/text_table.hpp"
#include "harness/tasks/task_facts.hpp"

namespace bnlab {
namespace {

constexpr std::array<int, 2> kGpus{8, 64};

// Milliseconds that the exchanges of statistics add to a step.
Estimate price(const StepCost& cost, int gpus, const Fabric& fabric) {
  StepProfile profile;
  profile.exchange = "nccl";
  for (const StepCost::Call& call : cost.calls)
    profile.exchanges.push_back(
        {.op = call.op, .purpose = call.purpose, .bytes = static_cast<double>(call.bytes)});
  return 1e3 * predict_step(profile, fabric, gpus, options_for("nccl", false, true)).statistics;
}

std::string interval(const Estimate& ms) {
  if (ms.high == 0) return "0";
  return significant(ms.mid, 2) + " (" + significant(ms.low, 2) + " to " + significant(ms.high, 2) + ")";
}

// On the built-in task, where it has as many classes as the network, or on images of one's own.
Json task_of(Labelled labelled, int64_t classes, const std::array<int64_t, 2>& size) {
  if (labelled == Labelled::images) return {{"name", "image_folder"}, {"root", "PATH"}, {"size", size}};
  if (classes == 5) return {{"name", "shapes"}, {"size", size}};
  return {{"name", "folder"}, {"root", "PATH"}, {"classes", classes}, {"crop", size}};
}

}  // namespace

NetworkScreen network_screen(const Json& model, const std::array<int64_t, 2>& size, int64_t batch_per_tower) {
  const ModelFacts& facts = facts_of<ModelFacts>(model);
  const std::string folder = facts.folder(model);
  if (folder.empty()) return {};
  const std::vector<SiteValues> sites = site_values(model, size);
  if (sites.empty()) return {};
  const SiteValues& poorest = *poorest_of(sites);
  const bool single = poorest.values == 1;
  const std::string pixels = std::to_string(size[0]) + "x" + std::to_string(size[1]);
  std::string text = wrapped(
      folder + ": " + std::to_string(sites.size()) + (sites.size() == 1 ? " norm site" : " norm sites") +
      ". At " + pixels + " the poorest is " + poorest.name + ": " + std::to_string(poorest.values) +
      (single ? " value" : " values") + " per channel of an image, " +
      std::to_string(poorest.values * batch_per_tower) + " on a GPU with " + std::to_string(batch_per_tower) +
      (batch_per_tower == 1 ? " image." : " images."));
  if (single)
    text += wrapped(
        "With one image per GPU there is one value per channel, which no batch norm can normalise by: "
        "strategies that keep GPUs apart are refused there, as PyTorch refuses it. Synchronise, or give "
        "each GPU two images or more.");
  const std::vector<std::string> strategies = {
      "sync", single && batch_per_tower == 1 ? "weight_standardisation" : "per_tower", "group_norm"};
  const auto fabric = unknown_fabric({});
  TextTable table{{{"strategy"}, {"exchanges\na step", true}, {"bytes\na step", true}}, {}};
  for (const int gpus : kGpus) table.columns.push_back({"ms a step on\n" + std::to_string(gpus) + " GPUs"});
  Json rows = Json::array();
  for (const std::string& name : strategies) {
    const Json strategy = resolved_component("explain", "strategy", name);
    std::vector<std::string> row{name, "", ""};
    Json json{{"strategy", name}, {"milliseconds", Json::object()}};
    for (const int gpus : kGpus) {
      const StepCost cost = count_sites({.strategy = strategy,
                                         .towers = gpus,
                                         .batch_per_tower = std::max<int64_t>(batch_per_tower, 1),
                                         .ranks = gpus},
                                        sites);
      int64_t bytes = 0;
      for (const StepCost::Call& call : cost.calls) bytes += call.bytes;
      json["exchanges"] = cost.calls.size();
      json["bytes"] = bytes;
      row[1] = std::to_string(cost.calls.size());
      row[2] = std::to_string(bytes);
      const Estimate ms = price(cost, gpus, *fabric);
      json["milliseconds"][std::to_string(gpus)] = {{"low", ms.low}, {"mid", ms.mid}, {"high", ms.high}};
      row.push_back(interval(ms));
    }
    rows.push_back(json);
    table.rows.push_back(row);
  }
  Json given{{"name", model.at("name")}, {"file", folder}};
  const Json plain = resolved_component("explain", "model", given.dump());
  for (const auto& [key, value] : model.items())
    if (value != plain.at(key)) given[key] = value;
  const Json spec = {{"task", task_of(facts.answers(model), facts.classes(model), size)},
                     {"model", given},
                     {"optimizer", {{"name", "sgd"}, {"lr", 0.05}, {"momentum", 0.9}}},
                     {"steps", 1000},
                     {"matrix",
                      {{"seed", {0, 1, 2}},
                       {"towers,batch_per_tower", Json::array({{8, batch_per_tower}})},
                       {"strategy", strategies}}}};
  text += "\n" + table.text() + "\n" +
          wrapped(
              "Predicted for statistics alone, where nothing is known of the GPUs and their network; the "
              "interval is as wide as published clusters disagree. bnlab cost SPEC predicts whole steps.") +
          "\nA spec to compare them with, for bnlab run:\n\n" + spec.dump() + "\n\n";
  return {.json = {{"folder", folder},
                   {"norm_sites", sites.size()},
                   {"poorest", {{"site", poorest.name}, {"values_per_image", poorest.values}}},
                   {"strategies", rows},
                   {"spec", spec}},
          .text = text};
}

std::string network_screen(const std::vector<RunSpec>& runs) {
  for (const RunSpec& run : runs) {
    const ImageSizes sizes = facts_of<TaskFacts>(run.task).image_sizes(run.task);
    if (sizes.empty() || facts_of<ModelFacts>(run.model).folder(run.model).empty()) continue;
    return network_screen(run.model, sizes.front(), std::ranges::max(run.samples_per_tower)).text;
  }
  return "";
}

}  // namespace bnlab
