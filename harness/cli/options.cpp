#include "harness/cli/options.hpp"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <filesystem>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "harness/experiment/mistakes.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;
constexpr const char* kExperiments = "experiments";
constexpr int kMostAtOnce = 4096;  // ranks of a run, or runs side by side

std::vector<std::string> known_experiments() {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(kExperiments, none)) {
    if (entry.path().extension() == ".json") {
      names.push_back(entry.path().stem().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::string find_spec_if_any(const std::string& text) {
  if (fs::is_regular_file(text)) {
    return text;
  }
  const fs::path named = fs::path(kExperiments) / (text + ".json");
  return fs::is_regular_file(named) ? named.string() : "";
}

std::string find_spec(const std::string& text) {
  const std::string file = find_spec_if_any(text);
  if (file.empty()) {
    const std::string stem = fs::path(text).stem().string();
    throw Error(Error::Kind::usage, text + ": no such spec file, nor one in " + kExperiments + "/ here" +
                                        did_you_mean(stem, known_experiments()));
  }
  return file;
}

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

Json resolved_component(const std::string& command, const std::string& family, const std::string& text) {
  Mistakes mistakes(command);
  Problems problems;
  const Json complete = resolve({component_key(family)}, {{family, read_component(text)}}, "", problems);
  mistakes.add(problems);
  mistakes.throw_if_any();
  return complete[family];
}

std::string did_you_mean(const std::string& name, const std::vector<std::string>& known) {
  const std::string near = nearest(name, known);
  return near.empty() ? "" : "; did you mean " + near + "?";
}

void add_spec(CLI::App& command, std::string& spec) {
  command.add_option("SPEC", spec, "Spec file, or the name of one in experiments/")->required();
}

CLI::Option* add_json_flag(CLI::App& command, bool& json) {
  return command.add_flag("--json", json, "As JSON");
}

void add_ranks_option(CLI::App& command, int& ranks, const std::string& help) {
  CLI::Option* option =
      command.add_option("--ranks", ranks, help)->type_name("N")->check(CLI::Range(1, kMostAtOnce));
  if (ranks > 0) {
    option->capture_default_str();
  }
}

void add_device_option(CLI::App& command, std::string& device, const std::string& default_text) {
  CLI::Option* option = command.add_option("--device", device, "cpu or cuda" + default_text);
  option->type_name("DEVICE")->check(CLI::IsMember({"cpu", "cuda"}));
  if (!device.empty()) {
    option->capture_default_str();
  }
}

void add_results_option(CLI::App& command, std::string& results_dir) {
  command.add_option("--results", results_dir, "Folder of the records")
      ->type_name("DIR")
      ->capture_default_str();
}

void add_placement_options(CLI::App& command, LaunchOptions& options) {
  add_ranks_option(command, options.ranks, "Processes per run; default: one per GPU, on the CPU one");
  add_device_option(command, options.device, "; default: cuda if every rank can have a GPU");
  command
      .add_option_function<std::string>(
          "--exchange", [&options](const std::string& name) { options.exchange = choice_of<Exchange>(name); },
          "How ranks on CPUs exchange statistics and gradients: shared_memory (default on one host) or "
          "sockets")
      ->type_name("HOW")
      ->check(CLI::IsMember(split_names(names(Exchange{}))));
  command.add_option("--jobs", options.jobs, "Runs side by side (their throughput is then not comparable)")
      ->type_name("J")
      ->check(CLI::Range(1, kMostAtOnce));
  command
      .add_option("--only", options.only, "Runs that match, such as strategy=sync,per_tower; may be repeated")
      ->type_name("KEY=VALUE,...")
      ->allow_extra_args(false);
  command
      .add_option("--redo", options.redo,
                  "Finished runs that start again: stale, failed, all or the id of one; may be repeated")
      ->type_name("WHICH")
      ->allow_extra_args(false);
  command.add_flag_callback(
      "--retry", [&options] { options.redo.push_back("failed"); }, "The same as --redo failed");
  add_results_option(command, options.results_dir);
}

void add_data_option(CLI::App& command, std::string& data_dir) {
  command.add_option("--data", data_dir, "Folder below which data sets are found")
      ->type_name("DIR")
      ->envname("BNLAB_DATA");
}

}  // namespace bnlab
