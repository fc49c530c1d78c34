#include "harness/cli/options.hpp"

#include <filesystem>

#include "harness/components/component_text.hpp"
#include "harness/components/registry.hpp"
#include "harness/experiment/mistakes.hpp"
#include "harness/support/shell.hpp"

namespace bnlab {

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
  program = std::filesystem::read_symlink("/proc/self/exe").string();
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

Json read_component(const std::string& text) {
  const std::optional<Json> component = component_of(text);
  if (!component) {
    throw Error(Error::Kind::usage,
                "expected a name or a JSON object {\"name\": ..., its parameters}, got " + text);
  }
  return *component;
}

Json resolved_component(const std::string& command, const std::string& family, const std::string& text) {
  Mistakes mistakes(command);
  Problems problems;
  const Json complete = resolve({component_key(family)}, {{family, read_component(text)}}, "", problems);
  mistakes.add(problems);
  mistakes.throw_if_any();
  return complete[family];
}

}  // namespace bnlab
