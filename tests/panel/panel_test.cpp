// The panel made anew: every entry computes what is committed, the panel reaches every component with its
// options, and a small change of any of them is seen.
#include "harness/numerics/panel.hpp"

#include <gtest/gtest.h>

#include <set>

#include "harness/components/registry.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/panel/measure.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

std::string identifier(const std::string& name) {
  std::string text;
  for (const char c : name)
    text += c == ' ' ? "__" : std::isalnum(static_cast<unsigned char>(c)) != 0 ? std::string(1, c) : "_";
  return text;
}

class Panel : public ::testing::TestWithParam<PanelEntry> {};

TEST_P(Panel, ComputesWhatIsCommitted) {
  const PanelEntry& entry = GetParam();
  std::string why;
  const auto values = measure(entry, why);
  if (!values) GTEST_SKIP() << why;
  EXPECT_EQ(joined(panel_differences(entry, *values), "\n"), "")
      << "Is that meant? Then write harness/numerics/values.json anew with `bnlab panel --into`: records of "
         "what has changed become stale";
  ASSERT_TRUE(committed_panel().contains(entry.name));
  EXPECT_EQ(committed_panel().at(entry.name).at("stands_for"), stands_for(entry));
}

INSTANTIATE_TEST_SUITE_P(Of, Panel, ::testing::ValuesIn(panel()),
                         [](const auto& entry) { return identifier(entry.param.name); });

// ---- what the panel reaches

// Options that change no number that a run computes, or cannot be tried in a run of seconds, each with the
// reason.
const std::map<std::string, std::string> kNotInThePanel = {
    {"root", "says where files are"},
    {"cache_mib", "the same bytes, slower"},
    {"train_split", "says which files"},
    {"images", "says which files"},
    {"labels", "says which files, but for cityscapes, whose two kinds are there"},
    {"image_suffix", "says which files"},
    {"label_suffix", "says which files"},
    {"train_list", "says which files"},
    {"test_list", "says which files"},
    {"pattern", "says which files"},
    {"first", "says which files"},
    {"timing", "the same training, whose times are taken behind it"},
};

// A model that computes what a folder says has no numbers to commit. Records of it name the tokens of its
// source.
constexpr const char* kComputesAFolder = "exported";

void add_varied(const Json& value, std::set<std::string>& varied) {
  for (const auto& [path, condition] : value.items()) {
    const size_t dot = path.rfind('.');
    varied.insert(dot == std::string::npos ? path : path.substr(dot + 1));
    if (condition.is_string()) varied.insert(path.substr(dot + 1) + "=" + condition.get<std::string>());
  }
}

std::set<std::string> varied_in_the_panel() {
  std::set<std::string> varied;
  for (const PanelEntry& entry : panel()) {
    add_varied(stands_for(entry), varied);
    add_varied(stands_for(entry).flatten(), varied);
  }
  return varied;
}

TEST(PanelReach, EveryComponentIsInTheEntryOfAName) {
  std::set<std::string> names;
  const std::function<void(const Json&)> add = [&](const Json& value) {
    if (value.is_object() && value.contains("name")) names.insert(value.at("name").get<std::string>());
    if (value.is_structured())
      for (const Json& below : value) add(below);
  };
  for (const PanelEntry& entry : panel()) add(read_resolved(entry.keys).resolved);
  for (const char* family : {"strategy", "model", "backbone", "task", "augmentation", "optimizer", "loss"}) {
    for (const std::string& name : registered_names(family)) {
      EXPECT_TRUE(names.contains(name) || name == kComputesAFolder)
          << family << " " << name << ": add an entry to harness/numerics/entries.json";
    }
  }
}

void expect_varied(const Parameter& parameter, const std::string& owner,
                   const std::set<std::string>& varied) {
  if (kNotInThePanel.contains(parameter.name)) return;
  if (parameter.kind == Parameter::Kind::component) return;
  if (!parameter.fields.empty()) {
    if (varied.contains(parameter.name)) return;  // the object as a whole: null or empty in the entry below
    for (const Parameter& field : parameter.fields)
      expect_varied(field, owner + "." + parameter.name, varied);
    return;
  }
  EXPECT_TRUE(varied.contains(parameter.name))
      << owner << "." << parameter.name << " has no entry in the panel";
  for (const std::string& choice : parameter.choices) {
    const bool is_default =
        parameter.fallback == choice || (parameter.list && parameter.fallback == Json{choice});
    const bool is_of_base = owner == "run" && parameter.name == "precision" && choice == "float64";
    EXPECT_TRUE(is_default || is_of_base || varied.contains(parameter.name + "=" + choice))
        << owner << "." << parameter.name << " = " << choice << " has no entry in the panel";
  }
}

TEST(PanelReach, EveryOptionIsVaried) {
  const std::set<std::string> varied = varied_in_the_panel();
  for (const char* family : {"strategy", "model", "backbone", "task", "augmentation", "optimizer", "loss"}) {
    for (const auto& [name, about] : registered(family))
      for (const Parameter& parameter : about.parameters())
        if (name != kComputesAFolder) expect_varied(parameter, name, varied);
  }
  for (const Parameter& parameter : run_parameters()) {
    const std::set<std::string> elsewhere = {"task", "model", "strategy", "optimizer",
                                             "seed", "steps", "tf32",     "deterministic"};
    if (changes_result(parameter.name) && !elsewhere.contains(parameter.name))
      expect_varied(parameter, "run", varied);
  }
}

// ---- what the panel sees

// A small change of what an entry stands for, as a fault in its formula would make it.
struct Fault {
  const char* entry;
  const char* keys;
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) {
  return out << fault.entry << " with " << fault.keys;
}

class PanelFault : public ::testing::TestWithParam<Fault> {};

TEST_P(PanelFault, IsSeen) {
  PanelEntry entry = panel_entry(GetParam().entry);
  std::string why;
  const Json faults = Json::parse(GetParam().keys);
  for (const auto& [key, value] : faults.items()) set(entry.keys, key, value);
  const auto values = measure(entry, why);
  if (!values) GTEST_SKIP() << why;
  EXPECT_FALSE(panel_differences(entry, *values).empty());
}

INSTANTIATE_TEST_SUITE_P(
    Small, PanelFault,
    ::testing::Values(
        Fault{"base", R"({"strategy": {"name": "per_tower", "eps": 2e-5}})"},
        Fault{"base", R"({"strategy": {"name": "per_tower", "momentum": 0.1001}})"},
        Fault{"single_tower", R"({"strategy": {"name": "single_tower", "tower": 1}})"},
        Fault{"last_tower", R"({"strategy": "single_tower"})"},
        Fault{"every_tower", R"({"strategy": "averaged"})"},
        Fault{"averaged", R"({"strategy": {"name": "averaged", "merge": "pooled"}})"},
        Fault{"sync", R"({"strategy": {"name": "sync", "gradient": "own_tower"}})"},
        Fault{"sync", R"({"strategy": {"name": "sync", "variance": "averaged"}})"},
        Fault{"batch_renorm",
              R"({"strategy": {"name": "batch_renorm", "r_max": 1.5, "d_max": 0.51, "schedule": null}})"},
        Fault{"frozen", R"({"strategy": {"name": "frozen", "from_step": 3}})"},
        Fault{"ghost", R"({"strategy": {"name": "ghost", "virtual_batch": 1, "eps": 2e-5}})"},
        Fault{"norm_batch", R"({"strategy": {"name": "norm_batch", "samples": 4, "eps": 2e-5}})"},
        Fault{"shuffle", R"({"strategy": "per_tower"})"},
        Fault{"cmbn accumulate", R"({"strategy": "per_tower"})"}, Fault{"accumulate", R"({"accumulate": 1})"},
        Fault{"statistics_per step", R"({"statistics_per": "micro_batch"})"},
        Fault{"precise", R"({"strategy": {"name": "precise", "batches": 3}})"},
        Fault{"group_norm", R"({"strategy": {"name": "group_norm", "groups": 2, "eps": 2e-5}})"},
        Fault{"layer_norm", R"({"strategy": {"name": "layer_norm", "eps": 2e-5}})"},
        Fault{"instance_norm", R"({"strategy": {"name": "instance_norm", "eps": 2e-5}})"},
        Fault{"weight_norm", R"({"strategy": {"name": "weight_norm", "init_scale": 1.0001}})"},
        Fault{
            "weight_standardisation",
            R"({"strategy": {"name": "weight_standardisation", "base": {"name": "group_norm", "groups": 2}, "eps": 2e-5}})"},
        Fault{"filter_response_norm", R"({"strategy": {"name": "filter_response_norm", "eps": 2e-3}})"},
        Fault{
            "mabn",
            R"({"strategy": {"name": "mabn", "window": 2, "warmup_steps": 0, "renorm_from_step": 2, "r_max": 1.01, "eps": 2e-5}})"},
        Fault{"float16", R"({"loss_scaling": {"start": 1e30}})"},
        Fault{"dynamic_tanh", R"({"strategy": {"name": "dynamic_tanh", "alpha": 0.5001}})"},
        Fault{"none", R"({"strategy": "layer_norm"})"}, Fault{"base", R"({"optimizer.lr": 0.100001})"},
        Fault{"base", R"({"optimizer.momentum": 0.900001})"},
        Fault{"base", R"({"optimizer.weight_decay": 0.000101})"},
        Fault{"base", R"({"optimizer.power": 0.90001})"},
        Fault{"cosine", R"({"optimizer.schedule": "poly"})"},
        Fault{"adamw", R"({"optimizer": {"name": "adamw", "lr": 0.01, "eps": 1e-6}})"},
        Fault{"adamw", R"({"optimizer": {"name": "adamw", "lr": 0.01, "betas": [0.9, 0.99901]}})"},
        Fault{"label_smoothing", R"({"task.loss.label_smoothing": 0.10001})"},
        Fault{"class_weights", R"({"task.loss.class_weights": [1, 2, 0.5, 1, 3.0001]})"},
        Fault{"ohem min_kept", R"({"task.loss.min_kept": 190})"},
        Fault{"base", R"({"task.nuisance": 0.30001})"}, Fault{"motion", R"({"seed": 8})"},
        Fault{"folder", R"({"task.random_scale_max": 1.99})"},
        Fault{"photographs mmseg", R"({"task.augment": {"name": "mmseg", "hue": 36.1}})"},
        Fault{"photographs semseg", R"({"task.augment": {"name": "semseg", "rotation": 10.1}})"},
        Fault{"camvid", R"({"task.random_scale_min": 0.76})"},
        Fault{"voc", R"({"task.random_scale_min": 0.51})"},
        Fault{"ade20k", R"({"task.random_scale_min": 0.51})"},
        Fault{"cityscapes", R"({"task.random_scale_min": 0.51})"},
        Fault{"image_folder", R"({"task.short_side": 19})"}, Fault{"frames", R"({"task.short_side": 19})"},
        Fault{"population precise", R"({"precise_batches": 3})"},
        Fault{"weight_ema", R"({"weight_ema": 0.1})"},
        Fault{"uneven towers", R"({"batch_per_tower": [1, 2, 1, 2]})"},
        Fault{"pspnet", R"({"model.dropout": 0.11})"}, Fault{"fcn", R"({"model.dropout": 0.11})"},
        Fault{"deeplab_v3", R"({"model.dropout": 0.51})"},
        Fault{"deeplab_v3_plus", R"({"model.dropout": 0.11})"}));

}  // namespace
}  // namespace bnlab
