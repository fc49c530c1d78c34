// bnlab plan: the expanded matrix, what is done, what is left out and why, an estimate of time and memory.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "harness/cli/estimate.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/launch/placing.hpp"
#include "harness/launch/progress.hpp"
#include "harness/launch/selection.hpp"
#include "harness/records/text_table.hpp"
#include "harness/training/rank.hpp"

namespace bnlab {
namespace {

struct Plan {
  Experiment experiment;
  std::vector<PlacedRun> runs;
  std::vector<std::string> states;  // of each run: the outcome of its record, or "missing"
  std::vector<std::string> remarks;
  int to_start = 0;
  std::optional<double> seconds;            // of the runs to start
  std::optional<double> peak_memory_bytes;  // the largest rank so far
};

Plan make_plan(const std::string& spec, const LaunchOptions& options) {
  Plan plan;
  plan.experiment = load_experiment(find_spec(spec));
  plan.runs = place_runs(plan.experiment, select_runs(plan.experiment, options.only), options, visible_gpus,
                         usable_cores(), plan.remarks);
  const Estimate estimate(list_records(options.results_dir, plan.experiment.name));
  double seconds = 0;
  bool all_known = true;
  for (const PlacedRun& run : plan.runs) {
    const auto record = find_record(run.folder);
    plan.states.push_back(record ? name(record->status()) : "missing");
    if (is_done(run.folder, options.retry)) {
      continue;
    }
    ++plan.to_start;
    const auto expected = estimate.seconds(run);
    all_known = all_known && expected;
    seconds += expected.value_or(0) / options.jobs;
  }
  plan.seconds = all_known ? std::optional(seconds) : std::nullopt;
  plan.peak_memory_bytes = estimate.peak_memory_bytes();
  return plan;
}

Json plan_json(const Plan& plan) {
  Json runs = Json::array();
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    runs.push_back({{"run_id", plan.runs[i].spec.id},
                    {"placement", plan.runs[i].placement.name()},
                    {"threads_per_rank", plan.runs[i].threads},
                    {"state", plan.states[i]},
                    {"folder", plan.runs[i].folder}});
  }
  Json excluded = Json::array();
  for (const auto& cell : plan.experiment.excluded) {
    excluded.push_back({{"run_id", cell.id}, {"rule", cell.rule}});
  }
  return {{"experiment", plan.experiment.name},
          {"runs", runs},
          {"excluded", excluded},
          {"to_start", plan.to_start},
          {"estimated_time_s", plan.seconds ? Json(*plan.seconds) : Json()},
          {"peak_memory_bytes", plan.peak_memory_bytes ? Json(*plan.peak_memory_bytes) : Json()}};
}

void print(const Plan& plan) {
  TextTable table{{{"run"}, {"placement"}, {"threads", true}, {"state"}}, {}};
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const PlacedRun& run = plan.runs[i];
    table.rows.push_back({run.spec.id, run.placement.name(), std::to_string(run.threads), plan.states[i]});
  }
  std::cout << table.text();
  for (const auto& cell : plan.experiment.excluded) {
    std::cout << "excluded by exclude[" << cell.rule << "]: " << cell.id << "\n";
  }
  std::cout << plan.to_start << " of " << plan.runs.size() << " runs to start";
  if (plan.to_start > 0) {
    std::cout << "; expected time: "
              << (plan.seconds ? duration_text(*plan.seconds) : "unknown before a first run has finished");
  }
  if (plan.peak_memory_bytes) {
    std::cout << "; largest peak memory of a rank so far: " << fixed(*plan.peak_memory_bytes / (1 << 20), 0)
              << " MiB";
  }
  std::cout << "\n";
  for (const std::string& remark : plan.remarks) {
    std::cerr << "note: " << remark << "\n";
  }
}

}  // namespace

void add_plan(Program& program) {
  CLI::App* command = add_command(program, "plan", "What `run` with the same options would do",
                                  "  bnlab plan experiments/quickstart.json --ranks 2\n"
                                  "  bnlab plan small_batch_segmentation --only strategy=sync --json");
  const auto spec = std::make_shared<std::string>();
  const auto options = std::make_shared<LaunchOptions>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("SPEC", *spec, "Spec file, or the name of one in experiments/")->required();
  add_placement_options(*command, *options);
  command->add_flag("--json", *json, "As JSON");
  command->callback([&program, spec, options, json] {
    program.action = [spec, options, json] {
      const Plan plan = make_plan(*spec, *options);
      if (*json) {
        std::cout << plan_json(plan).dump(2) << "\n";
      } else {
        print(plan);
      }
      return exit_code::kOk;
    };
  });
}

}  // namespace bnlab
