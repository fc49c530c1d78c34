#include "harness/cli/options.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/experiment/mistakes.hpp"
#include "harness/experiment/run.hpp"
#include "harness/experiment/weights_file.hpp"
#include "harness/launch/placing.hpp"
#include "harness/population.hpp"
#include "harness/probe/probe.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/record.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/store/schema.hpp"
#include "harness/store/tuning_scores.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/shell.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;
constexpr const char* kExperiments = "experiments";
constexpr size_t kLongestShown = 200;  // of a file, in a message

// The specs in a folder.
std::vector<fs::path> specs_in(const fs::path& folder) {
  std::vector<fs::path> specs;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ".json") specs.push_back(entry.path());
  std::ranges::sort(specs);
  return specs;
}

// Those that can be named without their folder: in experiments/ and, behind these, in the folders in it.
std::vector<fs::path> known_specs() {
  std::error_code none;
  const std::set<fs::path> below(fs::directory_iterator(kExperiments, none), fs::directory_iterator());
  std::vector<fs::path> specs = specs_in(kExperiments);
  for (const fs::path& folder : below) std::ranges::copy(specs_in(folder), std::back_inserter(specs));
  return specs;
}

// What can be typed for a spec, by the name that it goes under: those beside `spec` by their files.
std::map<std::string, std::string> known_names(const std::string& spec, const std::string& results_dir) {
  std::map<std::string, std::string> known;
  for (const std::string& name : list_experiments(results_dir)) known[name] = name;
  for (const fs::path& file : known_specs()) known[file.stem().string()] = file.stem().string();
  const fs::path folder = fs::path(spec).parent_path();
  for (const fs::path& file : specs_in(folder.empty() ? "." : folder))
    known.try_emplace(file.stem().string(), (folder / file.filename()).string());
  return known;
}

// With the places that were looked at, and the nearest name that one of them has.
std::string no_such_spec(const std::string& spec, const std::string& results_dir) {
  std::error_code none;
  if (fs::is_directory(spec, none))
    return spec + ": this folder keeps no " + kSpecFile + "; name the spec's own file";
  const std::map<std::string, std::string> known = known_names(spec, results_dir);
  const std::string near =
      nearest(fs::path(spec).stem().string(), mapped(known, [](const auto& name) { return name.first; }));
  const std::string where = fs::is_directory(kExperiments, none)
                                ? std::string(kExperiments) + "/"
                                : std::string(kExperiments) + "/ (looked for in " +
                                      fs::current_path().string() + ", where none is)";
  return spec.substr(0, kLongestShown) + ": no such spec file, and none of this name in " + where + " or " +
         results_dir + "/" +
         (near.empty() ? "; bnlab init FILE begins one" : "; did you mean " + known.at(near) + "?");
}

void refuse_unreadable(const std::string& spec) {
  struct stat status{};
  const bool is_hidden = ::stat(spec.c_str(), &status) != 0 && errno == EACCES;
  if (is_hidden || (S_ISREG(status.st_mode) && ::access(spec.c_str(), R_OK) != 0))
    throw Error(Error::Kind::usage, spec + ": cannot be read: " + std::strerror(errno));
}

std::optional<Experiment> found(const std::string& spec, std::string& results_dir,
                                const std::vector<std::string>& overrides) {
  std::error_code none;
  refuse_unreadable(spec);
  if (fs::is_regular_file(spec, none)) return load_experiment(spec, overrides);
  const std::vector<fs::path> known = known_specs();
  if (const auto named = std::ranges::find(known, fs::path(spec), &fs::path::stem); named != known.end())
    return load_experiment(named->string(), overrides);
  fs::path folder = (fs::path(spec) / "").lexically_normal().parent_path();  // without a slash at its end
  folder = folder == "." ? fs::current_path() : folder;
  if (fs::is_regular_file(folder / kSpecFile, none)) {
    results_dir = folder.has_parent_path() ? folder.parent_path().string() : ".";
    return load_experiment((folder / kSpecFile).string(), overrides, folder.filename().string());
  }
  const fs::path kept = experiment_folder(results_dir, spec) / kSpecFile;
  const bool is_name = fs::path(spec).filename() == spec;
  return is_name && fs::is_regular_file(kept, none)
             ? std::optional(load_experiment(kept.string(), overrides, spec))
             : std::nullopt;
}

// The one run that a spec stands for.
RunSpec only_run(const std::string& spec) {
  std::string results = "results";
  const Experiment experiment = load_asked(spec, results);
  if (experiment.runs.size() != 1) {
    throw Error(Error::Kind::usage, "--spec " + spec + ": expected a spec of one run, got one of " +
                                        std::to_string(experiment.runs.size()));
  }
  return experiment.runs[0];
}

// {"name": "sync", "gradient": "stopped"} of the label "sync(gradient=stopped)"; a name alone stays a text.
Json component_of_label(const std::string& text) {
  const size_t open = text.find('(');
  if (open == std::string::npos || !text.ends_with(')')) return text;
  Json component{{"name", text.substr(0, open)}};
  int depth = 0;
  for (size_t begin = open + 1, i = begin; i < text.size(); ++i) {
    depth += (text[i] == '(') - (text[i] == ')');
    if ((text[i] != ',' || depth > 0) && i + 1 < text.size()) continue;
    begin = std::min(text.find_first_not_of(' ', begin), i);
    const std::string option = text.substr(begin, i - begin);
    if (option.empty()) break;
    const size_t equals = option.find('=');
    const std::string value = equals == std::string::npos ? "" : option.substr(equals + 1);
    component[option.substr(0, equals)] =
        Json::accept(value) ? Json::parse(value) : component_of_label(value);
    begin = i + 1;
  }
  return component;
}

bool of_averaged_weights(const std::string& population) {
  return population == kAveragedWeights || population == "ema_precise" || population == "ema_live";
}

// Where weights were selected those after which they were best in validation, else all.
std::optional<int64_t> steps_of_weights(const Record& record) {
  const auto selected = record.number("result.selected.step"), trained = record.number("result.steps");
  const auto steps = selected ? selected : trained;
  return steps ? std::optional(static_cast<int64_t>(*steps)) : std::nullopt;
}

// The folder of a run's only placement, where `folder` is that of the run; else `folder`.
fs::path one_placement(const fs::path& folder) {
  if (fs::exists(folder / kWeightsFile) || find_record(folder)) return folder;
  std::vector<fs::path> placements = known_folders(folder);
  std::erase_if(placements, [](const fs::path& each) { return !find_record(each); });
  return placements.size() == 1 ? placements.front() : folder;
}

}  // namespace

std::optional<Experiment> load_if_any(const std::string& spec, std::string& results_dir,
                                      const std::vector<std::string>& overrides) {
  std::optional<Experiment> experiment = found(spec, results_dir, overrides);
  if (experiment && experiment->tuning) settle(*experiment, kept_scores(*experiment, results_dir));
  return experiment;
}

Experiment load_asked(const std::string& spec, std::string& results_dir,
                      const std::vector<std::string>& overrides) {
  std::optional<Experiment> experiment = load_if_any(spec, results_dir, overrides);
  if (!experiment) throw Error(Error::Kind::usage, no_such_spec(spec, results_dir));
  return std::move(*experiment);
}

Json read_component(const std::string& text) {
  if (text.empty() || text.front() != '{') return component_of_label(text);
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

std::vector<std::string> all_experiments(const std::string& results_dir) {
  return mapped(list_experiments(results_dir), [&](const std::string& name) {
    const fs::path folder = experiment_folder(results_dir, name);
    return fs::exists(folder / kSpecFile) ? folder.string() : name;
  });
}

void AskedSpec::describe(Arguments& option, const char* spec, const char* help) {
  option(spec, name, help);
  option("[KEY=VALUE]", overrides,
         "Keys of the spec to set otherwise, such as steps=10 or task.size=[32,32]");
}

Argument& describe_device(Arguments& option, std::string& device, const std::string& otherwise) {
  return option("--device DEVICE", device, "Where to compute: cpu or cuda" + otherwise)
      .one_of(split_names(names(Device{})));
}

Argument& describe_data(Arguments& option, std::string& folder) {
  return option("--data DIR", folder, "Folder below which data sets are found").or_variable("BNLAB_DATA");
}

Argument& describe_run_spec(Arguments& option, std::string& spec) {
  return option("--spec SPEC", spec, "Spec of the run, instead of the record beside the weights");
}

void describe_results(Arguments& option, std::string& folder) {
  option("--results DIR", folder, "Folder of the records").expects("a folder").not_empty();
}

void describe_notify(Arguments& option, std::string& command) {
  option("--notify CMD", command,
         "Start a command of the shell when a run fails and when the matrix has ended, with BNLAB_EVENT "
         "(failed or ended), BNLAB_EXPERIMENT, BNLAB_MESSAGE, BNLAB_RUN and BNLAB_FOLDER set");
}

void AskedLaunch::describe(Arguments& option) {
  command = shell_command("bnlab", option.typed());
  program = fs::read_symlink("/proc/self/exe").string();
  option("--ranks N", ranks,
         "Processes per run, or the most below that divide the towers. Default: as runs of the same "
         "results were started last, else one per GPU, one on the CPU. A run that was done on "
         "another number counts only without --ranks")
      .from(1, kMostAtOnce);
  option("--device DEVICE", device,
         "Where to compute: cpu or cuda. Default: as last time, else cuda if every rank can have a GPU");
  option("--exchange HOW", exchange,
         "How ranks exchange: on CPUs by shared_memory (default on one host) or sockets, on GPUs by NCCL or "
         "peers");
  option("--threads N", threads,
         "Threads of each rank. Default: its share of the cores, under a launcher what "
         "OMP_NUM_THREADS, SLURM or its binding give. The spec's placement.threads comes first")
      .from(1, kMostAtOnce);
  const auto take_jobs = [this](const std::string& text) {
    const int64_t count = text == "auto" ? kAutoJobs : integer_in(text).value_or(-1);
    jobs = static_cast<int>(count);
    return text == "auto" || (count >= 1 && count <= kMostAtOnce);
  };
  option("--jobs J", take_jobs,
         "How many runs side by side, whose throughput is then not comparable. auto: as many as have GPUs, "
         "or on the CPU cores, of their own")
      .expects("auto or a number from 1 to " + std::to_string(kMostAtOnce));
  option("--fresh-ranks", fresh_ranks,
         "Start the ranks of every run anew. Without it they take the next run, too");
  option("--only KEY=VALUE,...", only,
         "Take only runs that match, such as strategy=sync,per_tower or run=ID. May be repeated. seed=any "
         "takes one run of each cell, drawn at random");
  option("--slice I/N", slice, "Take every N-th run, starting with the I-th");
  option("--redo WHICH", redo,
         "Start finished runs again: stale, disturbed (timed while others used the machine), failed, "
         "all or the id of one. May be repeated");
  const auto take_failed = [this](const std::string&) {
    redo.emplace_back("failed");
    return true;
  };
  option("--retry", take_failed, "The same as --redo failed");
  const auto take_seconds = [this](const std::string& text) {
    steal_after = std::chrono::seconds(integer_in(text).value_or(0));
    return steal_after.count() > 0;
  };
  option("--steal-after SECONDS", take_seconds,
         "Take over the run of another process that gave no sign of life for so long. Default: 900")
      .expects("a number above 0");
  describe_results(option, results_dir);
  describe_data(option, data_dir);
}

void AskedWeights::describe(Arguments& option) {
  describe_run_spec(option, spec);
  describe_device(option, job.device);
  describe_data(option, job.data_dir);
}

Json read_probe(const std::string& file) {
  const std::string expected = ": expected a file of bnlab probe --out";
  if (!fs::is_regular_file(file)) throw Error(Error::Kind::usage, file + expected + ", got none");
  const Json probe = as_usage([&] { return read_json(file, probe_schema(), Keys::any); });
  if (value_at(probe, "schema").is_null()) throw Error(Error::Kind::usage, file + expected);
  return probe;
}

EvaluateJob job_of_weights(EvaluateJob job, const std::string& spec) {
  if (!fs::is_regular_file(job.weights))
    if (const fs::path folder = one_placement(job.weights); fs::is_directory(folder) || find_record(folder))
      job.weights = (folder / kWeightsFile).string();
  if (const std::string cure = pytorch_cure(job.weights); !cure.empty())
    throw Error(Error::Kind::usage, "expected a safetensors file, got " + job.weights + cure);
  const fs::path folder = fs::path(job.weights).parent_path();
  const auto record = find_record(folder);
  if (!fs::is_regular_file(job.weights) && record && record->failed()) {
    const Json& why = record->at("outcome.message");
    throw Error(Error::Kind::usage, folder.string() +
                                        ": this run failed, and left no weights: " + name(record->status()) +
                                        (why.is_string() ? ": " + why.get<std::string>() : ""));
  }
  if (!fs::is_regular_file(job.weights)) {
    throw Error(Error::Kind::usage,
                job.weights + ": no such file; " +
                    (record ? "the record of the run is here and its weights are not (committed results have "
                              "none); make the run again: " +
                                  record->at("command").get<std::string>() +
                                  " --only run=" + record->run_id() + " --redo " + record->run_id() +
                                  (fs::exists(folder.parent_path().parent_path() / "tuning.json")
                                       ? ", with a copy of the experiment's tuning.json there"
                                       : "") +
                                  ", and name its folder there"
                            : "a run leaves its " + std::string(kWeightsFile) +
                                  " in RESULTS/EXPERIMENT/RUN/PLACEMENT, such as "
                                  "results/quickstart/RUN/1x8-cpu"));
  }
  if (!record && spec.empty()) {
    throw Error(Error::Kind::usage,
                job.weights + ": no " + kRecordFile + " beside it says which run it is of; use --spec SPEC");
  }
  job.spec = spec.empty() ? read_resolved(record->at("spec")) : only_run(spec);
  if (spec.empty()) job.steps = steps_of_weights(*record);
  // With the threads of the run, sums come out in the same order.
  job.threads = record ? record->at("placement.threads_per_rank").get<int>() : usable_cores();
  const fs::path pairs = folder / kPopulationsFile;
  job.pairs = fs::is_regular_file(pairs) ? pairs.string() : "";
  if (job.populations.empty()) {
    job.populations = job.spec.populations;
    std::erase_if(job.populations, of_averaged_weights);  // which the file does not hold
    if (job.populations.empty()) job.populations = {"saved"};
  }
  for (const std::string& population : job.populations) {
    const std::string problem = population_problem(population, job.spec.towers());
    if (!problem.empty() && population != kAveragedWeights)
      throw Error(Error::Kind::usage, "--population: " + problem);
    if (of_averaged_weights(population)) {
      throw Error(Error::Kind::usage, "--population: " + population +
                                          ": the file holds the weights of the last step, not their average; "
                                          "what the run found under it is in its record");
    }
  }
  return job;
}

}  // namespace bnlab
