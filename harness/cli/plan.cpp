// bnlab plan: the expanded matrix, what is done, what is left out and why, an estimate of time and memory.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/error.hpp"
#include "harness/experiment/tuning.hpp"
#include "harness/launch/placing.hpp"
#include "harness/launch/progress.hpp"
#include "harness/launch/selection.hpp"
#include "harness/launch/survey.hpp"
#include "harness/mapped.hpp"
#include "harness/report/cells.hpp"
#include "harness/report/power.hpp"
#include "harness/report/status.hpp"
#include "harness/store/tuning_scores.hpp"
#include "harness/text_table.hpp"
#include "harness/training/libraries.hpp"

namespace bnlab {
namespace {

// The records by which costs are judged.
std::vector<Record> usable_records(const std::string& results, const std::string& experiment) {
  std::vector<Record> records = list_records(results, experiment);
  std::erase_if(records,
                [](const Record& r) { return r.status() != Status::ok || !r.number("result.images"); });
  return records;
}

struct PlanRequest {
  std::string spec;
  std::vector<std::string> overrides;
  LaunchRequest launch;
  bool json = false;
  bool todo = false;
};

struct Plan {
  Experiment experiment;
  std::vector<PlacedRun> runs;
  std::vector<RunState> states;  // of each run
  std::vector<std::string> remarks;
  std::vector<std::string> missing;  // files that runs read
  int to_start = 0;
  std::optional<double> seconds;            // of the runs to start
  std::optional<double> peak_memory_bytes;  // the largest rank so far
  std::optional<double> disk_bytes;         // of the runs to start
  std::optional<double> free_disk_bytes;
};

// What `run` does first. The ids of the matrix's own runs follow from what is chosen then.
void plan_tuning(const PlanRequest& request, Plan& plan, LaunchRequest& asked) {
  const Tuning& tuning = *plan.experiment.tuning;
  if (request.todo) {
    throw Error(Error::Kind::usage,
                "--todo: the ids of the runs follow from what tunes them, which has not run yet; "
                "bnlab run " +
                    request.spec + " begins with it");
  }
  plan.remarks.push_back("first, " + tuning.sentence() + "; then " +
                         std::to_string(plan.experiment.runs.size()) + " runs of the matrix follow");
  Experiment first = tuning.runs;
  first.runs = needed_runs(tuning, scores_of(tuning, list_records(asked.results_dir, first.name)));
  if (const size_t later = tuning.runs.runs.size() - first.runs.size(); later > 0) {
    plan.remarks.push_back("up to " + std::to_string(later) +
                           " longer runs tune it, too, as far as doubling still gains " +
                           setting_text({{"", tuning.asked.gain_below}}) + " or more");
  }
  plan.experiment = std::move(first);
  asked.only.clear();
  asked.slice.clear();
}

Plan make_plan(const PlanRequest& request) {
  Plan plan;
  LaunchRequest asked = request.launch;
  plan.experiment = load_asked(request.spec, asked.results_dir, request.overrides);
  plan.remarks = seed_warnings(plan.experiment, list_records(asked.results_dir, plan.experiment.name));
  if (plan.experiment.tuning && !plan.experiment.tuning->is_settled()) {
    plan_tuning(request, plan, asked);
  }
  std::vector<RunSpec> selected = select_runs(std::move(plan.experiment.runs), asked.only, asked.slice);
  const WorldFacts facts = this_machine();
  asked.jobs = jobs_side_by_side(plan.experiment, selected, asked, facts);
  plan.runs = place_runs(plan.experiment, std::move(selected), asked, facts, plan.remarks);
  const std::vector<Record> records = usable_records(asked.results_dir, plan.experiment.name);
  const ExpectedTime time(records);
  double seconds = 0;
  bool all_known = true;
  std::vector<const RunSpec*> start;
  plan.missing = look_at_inputs(plan.runs, asked);
  plan.states = survey(plan.runs, asked.redo, plan.remarks);
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    if (!plan.states[i].starts) {
      continue;
    }
    start.push_back(&plan.runs[i].spec);
    const auto expected = time.seconds(plan.runs[i]);
    all_known = all_known && expected;
    seconds += expected.value_or(0) / asked.jobs;
  }
  plan.to_start = static_cast<int>(start.size());
  plan.disk_bytes = start.empty() ? std::nullopt : disk_need(start, records, asked.jobs);
  plan.free_disk_bytes = free_disk(asked.results_dir);
  plan.seconds = all_known ? std::optional(seconds) : std::nullopt;
  for (const Record& record : records) {
    plan.peak_memory_bytes = std::max(plan.peak_memory_bytes, metric_of(record, "peak_rss_bytes"));
  }
  return plan;
}

Json plan_json(const Plan& plan) {
  Json runs = Json::array();
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const std::filesystem::path around = std::filesystem::path(plan.runs[i].folder).parent_path();
    runs.push_back({{"run_id", plan.runs[i].spec.id},
                    {"placement", plan.states[i].placement},
                    {"threads_per_rank", plan.runs[i].threads},
                    {"state", plan.states[i].name()},
                    {"failure", or_null(plan.states[i].failure)},
                    {"stale", or_null(plan.states[i].stale)},
                    {"starts", plan.states[i].starts},
                    {"done_elsewhere", plan.states[i].elsewhere},
                    {"folder", (around / plan.states[i].placement).string()}});
  }
  const auto excluded = mapped(plan.experiment.excluded, [](const auto& cell) {
    return Json{{"run_id", cell.id}, {"rule", cell.rule}};
  });
  return {{"experiment", plan.experiment.name},
          {"runs", runs},
          {"excluded", excluded},
          {"to_start", plan.to_start},
          {"missing", plan.missing},
          {"estimated_time_s", or_null(plan.seconds)},
          {"peak_memory_bytes", or_null(plan.peak_memory_bytes)},
          {"disk_bytes", or_null(plan.disk_bytes)},
          {"free_disk_bytes", or_null(plan.free_disk_bytes)}};
}

// What else is said of a run, each sentence with the runs that it is said of.
void print_reasons(const Plan& plan) {
  std::map<std::string, int> reasons;
  for (const RunState& state : plan.states) {
    if (!state.failure.empty()) {
      ++reasons[state.name() + ": " + state.failure];
    }
    if (!state.stale.empty()) {
      ++reasons["stale: " + state.stale];
    }
  }
  for (const auto& [reason, runs] : reasons) {
    std::cout << runs << (runs == 1 ? " run " : " runs ") << reason << "\n";
  }
}

void print(const Plan& plan) {
  TextTable table{{{"run"}, {"placement"}, {"threads", true}, {"state"}}, {}};
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const auto& [run, state] = std::tie(plan.runs[i], plan.states[i]);
    table.rows.push_back({run.spec.id, state.placement, std::to_string(run.threads),
                          state.name() + (state.stale.empty() ? "" : ", stale")});
  }
  std::cout << table.text();
  print_reasons(plan);
  for (const auto& cell : plan.experiment.excluded) {
    std::cout << "excluded by exclude[" << cell.rule << "]: " << cell.id << "\n";
  }
  std::map<std::string, int> done;
  for (const RunState& state : plan.states) {
    if (!state.starts && state.outcome == Status::ok) ++done[state.placement];
  }
  std::cout << plan.to_start << " of " << plan.runs.size() << " runs to start";
  if (!done.empty()) {
    std::cout << "; done on " << placements_text(done);
  }
  if (plan.to_start > 0) {
    std::cout << "; expected time: "
              << (plan.seconds ? duration_text(*plan.seconds) : "unknown before a first run has finished");
  }
  if (plan.peak_memory_bytes) {
    std::cout << "; largest peak memory of a rank so far: " << mib_needed(*plan.peak_memory_bytes);
  }
  if (plan.disk_bytes && plan.free_disk_bytes) {
    std::cout << "; disk: about " << mib_needed(*plan.disk_bytes) << " of " << mib_left(*plan.free_disk_bytes)
              << " that are free";
  }
  std::cout << "\n";
  for (const std::string& remark : plan.remarks) {
    std::cerr << "note: " << remark << "\n";
  }
}

// A line per run, for other programs: `bnlab run SPEC --only run=LINE` does it.
void print_todo(const Plan& plan) {
  std::set<std::string> printed;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    if (plan.states[i].starts && printed.insert(plan.runs[i].spec.id).second) {
      std::cout << plan.runs[i].spec.id << "\n";
    }
  }
}

int plan(const PlanRequest& request) {
  const Plan plan = make_plan(request);
  if (request.json) {
    std::cout << plan_json(plan).dump(2) << "\n";
  } else if (request.todo) {
    print_todo(plan);
  } else {
    print(plan);
  }
  for (const std::string& message : plan.missing) {
    std::cerr << "bnlab: " << message << "\n";
  }
  // Without a data folder the question was another one than whether the data are there.
  return plan.missing.empty() || request.launch.data_dir.empty() ? exit_code::kOk : exit_code::kUsage;
}

}  // namespace

void add_plan(Program& program) {
  auto [command, request] = add_command(program, "plan", "What `run` with the same options would do",
                                        "  bnlab plan quickstart --ranks 2\n"
                                        "  bnlab plan small_batch_segmentation --only strategy=sync --json",
                                        plan);
  add_spec(command, request.spec);
  add_overrides(command, request.overrides);
  add_placement_options(command, request.launch);
  add_data_option(command, request.launch.data_dir);
  add_json_flag(command, request.json);
  command.add_flag("--todo", request.todo, "Only the ids of the runs to start, one per line");
}

}  // namespace bnlab
