// bnlab init: a spec to start from, with what every key means beside it.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "harness/cli/arguments.hpp"
#include "harness/cli/program.hpp"
#include "harness/components/registry.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/shell.hpp"

namespace bnlab {
namespace {

struct InitRequest {
  std::string file = "experiment.json";
  bool force = false;

  void describe(Arguments& option) {
    option("[FILE]", file, "The spec to write");
    option("--force", force, "Replace the file if it exists");
  }
};

struct Line {
  const char* key;
  const char* value;
  const char* advice;  // after the key's own help
};

// Half a minute of training on two cores.
constexpr Line kLines[] = {
    {"question", R"("What does ... cost, and what does it win?")", ""},
    {"claim", R"("... reaches a higher mean_iou than ...")", ""},
    {"task", R"({"name": "shapes", "size": [32, 32], "train": 256, "test": 64})", "; bnlab list tasks"},
    {"model", R"({"name": "unet", "base": 8, "levels": 3})", "; bnlab list models"},
    {"optimizer", R"({"name": "sgd", "lr": 0.05})", "; bnlab list optimizers"},
    {"steps", "200", ""},
    {"eval_every", "50", ""},
    {"towers", "2", ": one per GPU in the training that you ask about; they may share ranks"},
    {"batch_per_tower", "2", ""},
    {"populations", R"(["saved", "batch"])", ""},
};

std::string help_of(const std::string& key) {
  for (const Parameter& parameter : spec_parameters())
    if (parameter.name == key) return parameter.help;
  return "";
}

// Those that need no option to be given.
std::vector<std::string> simple_strategies() {
  std::vector<std::string> names;
  for (const auto& [name, about] : registered("strategy"))
    if (std::ranges::none_of(about.parameters(), &Parameter::required)) names.push_back(name);
  return names;
}

std::string commented_spec() {
  std::string text =
      "// Comments begin with //. bnlab plan shows the runs that a spec stands for, bnlab run makes "
      "them.\n{\n";
  for (const Line& line : kLines)
    text += "  // " + help_of(line.key) + line.advice + "\n  \"" + line.key + "\": " + line.value + ",\n";
  text +=
      "  // " + help_of("matrix") +
      "\n  \"matrix\": {\n"
      "    // fewer than six seeds show a direction at most\n"
      "    \"seed\": [0, 1, 2, 3, 4, 5],\n"
      "    // bnlab explain NAME tells what one computes and its options: {\"name\": ..., \"option\": ...};\n"
      "    // delete those that you do not compare\n"
      "    \"strategy\": [";
  const std::vector<std::string> names = simple_strategies();
  for (size_t i = 0; i < names.size(); ++i) {
    text += "\n      \"" + names[i] + "\"" + (i + 1 < names.size() ? "," : "") + "  // " +
            registered("strategy").at(names[i]).summary;
  }
  return text +
         "\n    ]\n  }\n"
         "  // the comparisons declared beforehand get intervals, p values and a verdict: of two strategies, "
         "or of\n"
         "  // runs that differ in other keys of the matrix\n"
         "  // , \"contrasts\": [{\"metric\": \"mean_iou\", \"strategy\": \"...\", \"above\": \"...\"},\n"
         "  //                 {\"metric\": \"mean_iou\", \"runs\": {\"towers\": 4}, \"above_runs\": "
         "{\"towers\": 2}}]\n}\n";
}

int init(const InitRequest& request) {
  const std::string name = std::filesystem::path(request.file).stem().string();
  if (const std::string problem = name_problem(name); !problem.empty())
    throw Error(Error::Kind::usage, request.file + ": the file's name is that of the experiment: " + problem);
  if (std::filesystem::is_directory(request.file))
    throw Error(Error::Kind::usage, request.file + " is a folder; name a file in it, such as " +
                                        (std::filesystem::path(request.file) / "mine.json").string());
  if (std::filesystem::exists(request.file) && !request.force)
    throw Error(Error::Kind::usage, request.file + " exists; --force replaces it");
  write_atomically(request.file, commented_spec());
  std::cerr << "wrote " << request.file
            << "; see its runs with: " << shell_command("bnlab plan", {request.file}) << "\n";
  return exit_code::kOk;
}

const Command init_command("init", {Heading::start_here, 5}, "Write a commented spec to start from",
                           "  bnlab init mine.json", init);

}  // namespace
}  // namespace bnlab
