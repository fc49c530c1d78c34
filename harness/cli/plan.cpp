// bnlab plan: the expanded matrix, what is done, what is left out and why, an estimate of time and memory.
#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/experiment/matching.hpp"
#include "harness/experiment/tuning.hpp"
#include "harness/launch/data_judged.hpp"
#include "harness/launch/disk_space.hpp"
#include "harness/launch/placing.hpp"
#include "harness/launch/progress.hpp"
#include "harness/launch/runs_to_start.hpp"
#include "harness/launch/selection.hpp"
#include "harness/launch/survey.hpp"
#include "harness/models/site_values.hpp"
#include "harness/report/cells.hpp"
#include "harness/report/power.hpp"
#include "harness/report/status.hpp"
#include "harness/store/records.hpp"
#include "harness/store/tuning_scores.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/shell.hpp"
#include "harness/support/text_table.hpp"
#include "harness/tasks/task_facts.hpp"
#include "harness/training/libraries.hpp"

namespace bnlab {
namespace {

struct PlanRequest {
  AskedSpec spec;
  AskedLaunch launch;
  bool json = false;
  bool todo = false;
  bool every_run = false;

  void describe(Arguments& option) {
    spec.describe(option);
    launch.describe(option);
    option("--json", json, "Print JSON");
    option("--runs", every_run, "Print a line for each run, with its id, instead of one for each cell")
        .not_with({"--json"});
    option("--todo", todo, "Print only the ids of the runs to start, one per line")
        .not_with({"--json", "--runs"});
  }
};

// Of all runs the tower whose statistics are made of the fewest values per channel in a pass. Nothing is
// known of clips, and of images whose size the options do not tell.
struct PoorestTower {
  std::string site;  // "": none is known
  int64_t values = 0, samples = 0;
  std::array<int64_t, 2> size{};
};

struct Plan {
  Experiment experiment;
  std::vector<PlacedRun> runs;
  std::vector<RunState> states;
  std::vector<CellColumn> columns;
  std::vector<std::string> remarks;
  std::vector<std::string> missing;    // files that runs read, and faults in them
  std::vector<std::string> misplaced;  // why runs cannot start where they would
  bool lacks_weights = false;          // a run to start lacks those of init_from
  PoorestTower poorest;
  int to_start = 0;
  std::optional<double> seconds;            // for the runs to start
  std::optional<double> peak_memory_bytes;  // the largest rank so far
  std::optional<double> disk_bytes;         // for the runs to start
  std::optional<double> free_disk_bytes;
};

// What `run` does first. The ids of the matrix's own runs follow from what is chosen then.
void plan_tuning(const PlanRequest& request, Plan& plan, LaunchRequest& asked) {
  const Tuning& tuning = *plan.experiment.tuning;
  if (request.todo) {
    throw Error(Error::Kind::usage,
                "--todo: the ids of the runs follow from what tunes them, which has not run yet; "
                "bnlab run " +
                    shell_word(request.spec.name) + " begins with it");
  }
  check_before_tuning(plan.experiment, asked.only);
  plan.remarks.push_back("first, " + tuning.sentence() + "; then " +
                         std::to_string(plan.experiment.runs.size()) + " runs of the matrix follow" +
                         (asked.only.empty() ? "" : ", of which --only chooses"));
  Experiment first = tuning.runs;
  const TuningScores scores = scores_of(tuning, list_records(asked.results_dir, first.name));
  first.runs = needed_runs(tuning, scores);
  if (const size_t later = most_needed_runs(tuning, scores) - first.runs.size(); later > 0) {
    const std::string halves = "of the better half of the settings each time";
    const std::string gains =
        "as far as doubling still gains " + setting_text({{"", tuning.asked.gain_below}}) + " or more";
    plan.remarks.push_back((tuning.asked.lengths.empty() ? "" : "up to ") + std::to_string(later) +
                           " longer runs tune it, too, " +
                           (tuning.asked.halvings == 0     ? gains
                            : tuning.asked.lengths.empty() ? halves
                                                           : halves + ", " + gains));
  }
  plan.experiment = std::move(first);
  asked.only.clear();
  asked.slice.clear();
}

// Tells of comparisons of throughput that no run may answer where it starts.
void add_unclaimed_throughputs(Plan& plan, int jobs) {
  const auto is_answered = [&](const Contrast& contrast, bool is_above) {
    const Json rule = contrast.rule(is_above);
    const std::string& strategy = is_above ? contrast.above : contrast.strategy;
    int runs = 0, claiming = 0;
    for (size_t i = 0; i < plan.runs.size(); ++i) {
      const RunSpec& run = plan.runs[i].spec;
      if ((contrast.of_strategies() && label(run.strategy) != strategy) || !matches(rule, run)) continue;
      ++runs;
      claiming += !plan.states[i].must_run || (jobs == 1 && !plan.runs[i].placement.emulated());
    }
    return runs == 0 || claiming > 0;
  };
  const auto unclaimed = std::ranges::count_if(plan.experiment.contrasts, [&](const Contrast& contrast) {
    return is_throughput(contrast.metric) && !(is_answered(contrast, false) && is_answered(contrast, true));
  });
  if (unclaimed > 0) {
    plan.remarks.push_back(
        std::to_string(unclaimed) + " of " + std::to_string(plan.experiment.contrasts.size()) +
        " declared comparisons " + (unclaimed == 1 ? "is" : "are") +
        " of images_per_s and will not be judged: runs with several towers on a rank, or beside others, "
        "claim no throughput; one tower per rank (--ranks) and --jobs 1 do");
  }
}

// Whether those of init_from are what a run lacks, rather than the data of its task.
bool lacks_weights(const PlacedRun& run) {
  return run.inputs.is_null() && run.spec.init_from &&
         (!reads_files(run.spec.task) || !std::filesystem::is_regular_file(run.spec.init_from->file));
}

PoorestTower poorest_tower(const std::vector<PlacedRun>& runs) {
  PoorestTower found;
  for (const PlacedRun& placed : runs) {
    const ImageSizes sizes = facts_of<TaskFacts>(placed.spec.task).image_sizes(placed.spec.task);
    std::vector<int64_t> samples = placed.spec.samples_per_pass();
    std::erase(samples, 0);
    if (sizes.empty() || samples.empty() || labels_clips(placed.spec.task)) continue;
    const std::vector<SiteValues> sites = site_values(placed.spec.model, sizes.front());
    const int64_t fewest = std::ranges::min(samples);
    const SiteValues* poorest = poorest_of(sites);
    if (poorest != nullptr && (found.site.empty() || poorest->values * fewest < found.values))
      found = {.site = poorest->name,
               .values = poorest->values * fewest,
               .samples = fewest,
               .size = sizes.front()};
  }
  return found;
}

Plan make_plan(const PlanRequest& request) {
  Plan plan;
  LaunchRequest asked = request.launch;
  plan.experiment = request.spec.load(asked.results_dir);
  std::vector<Record> records = list_records(asked.results_dir, plan.experiment.name);
  plan.remarks = seed_warnings(plan.experiment, records);
  if (plan.experiment.tuning && !plan.experiment.tuning->is_settled()) {
    plan_tuning(request, plan, asked);
    records = list_records(asked.results_dir, plan.experiment.name);
  }
  if (const int others = count_runs(plan.experiment, records).others; others > 0) {
    plan.remarks.push_back(experiment_folder(asked.results_dir, plan.experiment.name).string() + " holds " +
                           std::to_string(others) + (others == 1 ? " finished run" : " finished runs") +
                           kOfOtherSpecs);
  }
  plan.columns = columns_of(plan.experiment);
  std::vector<RunSpec> selected = select_runs(std::move(plan.experiment.runs), asked.only, asked.slice);
  const WorldFacts facts = this_machine();
  asked.jobs = jobs_side_by_side(plan.experiment, selected, asked, facts);
  plan.runs = place_runs(plan.experiment, std::move(selected), asked, facts, plan.remarks);
  std::erase_if(records, [](const Record& record) {  // costs are judged by the others
    return record.status() != Status::ok || !record.number("result.images");
  });
  const ExpectedTime time(records);
  double seconds = 0;
  std::vector<const PlacedRun*> to_judge;
  bool all_known = true;
  std::vector<const RunSpec*> start;
  plan.missing = look_at_inputs(plan.runs, asked);
  plan.poorest = poorest_tower(plan.runs);
  plan.states = survey(plan.runs, asked.redo, plan.remarks);
  add_unclaimed_throughputs(plan, asked.jobs);
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    if (!plan.states[i].must_run) continue;
    start.push_back(&plan.runs[i].spec);
    to_judge.push_back(&plan.runs[i]);
    plan.lacks_weights = plan.lacks_weights || lacks_weights(plan.runs[i]);
    const auto expected = time.seconds(plan.runs[i]);
    all_known = all_known && expected;
    seconds += expected.value_or(0) / asked.jobs;
  }
  plan.misplaced = misplaced(plan.runs, plan.states);
  const JudgedData data = judge_data(to_judge, asked, true);
  if (!data.refusals.empty() && !plan.lacks_weights) plan.missing.clear();  // they tell of all data
  plan.missing.insert(plan.missing.end(), data.refusals.begin(), data.refusals.end());
  plan.remarks.insert(plan.remarks.end(), data.remarks.begin(), data.remarks.end());
  plan.to_start = static_cast<int>(start.size());
  plan.disk_bytes = start.empty() ? std::nullopt : disk_need(start, records, asked.jobs);
  plan.free_disk_bytes = free_disk(asked.results_dir);
  plan.seconds = all_known ? std::optional(seconds) : std::nullopt;
  for (const Record& record : records)
    plan.peak_memory_bytes = std::max(plan.peak_memory_bytes, metric_of(record, "peak_rss_bytes"));
  return plan;
}

Json poorest_json(const PoorestTower& tower) {
  if (tower.site.empty()) return nullptr;
  return {{"site", tower.site}, {"values", tower.values}, {"samples", tower.samples}, {"size", tower.size}};
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
                    {"stopped_early", or_null(plan.states[i].stopped_early)},
                    {"disturbed", plan.states[i].disturbed},
                    {"starts", plan.states[i].must_run},
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
          {"misplaced", plan.misplaced},
          {"poorest_tower", poorest_json(plan.poorest)},
          {"estimated_time_s", or_null(plan.seconds)},
          {"peak_memory_bytes", or_null(plan.peak_memory_bytes)},
          {"disk_bytes", or_null(plan.disk_bytes)},
          {"free_disk_bytes", or_null(plan.free_disk_bytes)}};
}

// What else is said of a run, each sentence with the runs that it is said of.
void print_reasons(const Plan& plan) {
  std::map<std::string, int> reasons;
  for (const RunState& state : plan.states) {
    if (!state.failure.empty()) ++reasons[state.name() + ": " + state.failure];
    if (!state.stale.empty()) ++reasons["stale: " + state.stale];
  }
  for (const auto& [reason, runs] : reasons)
    std::cout << runs << (runs == 1 ? " run " : " runs ") << reason << "\n";
}

// A line for each rule of `exclude`, or for each run.
void print_excluded(const Experiment& experiment, bool every_run) {
  std::map<size_t, int> counts;
  for (const auto& cell : experiment.excluded) {
    ++counts[cell.rule];
    if (every_run) std::cout << "left out by exclude[" << cell.rule << "]: " << cell.id << "\n";
  }
  for (const auto& [rule, runs] : counts) {
    if (every_run) break;
    std::cout << "left out by exclude[" << rule << "] " << experiment.asked.at("exclude").at(rule).dump()
              << ": " << runs << (runs == 1 ? " run" : " runs") << "\n";
  }
}

std::string state_text(const RunState& state) {
  return state.name() + (state.stopped_early.empty() ? "" : ", stopped early " + state.stopped_early) +
         (state.stale.empty() ? "" : ", stale") + (state.disturbed ? ", disturbed" : "");
}

TextTable table_of_runs(const Plan& plan) {
  TextTable table{{{"run"}, {"placement"}, {"threads", true}, {"state"}}, {}};
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const auto& [run, state] = std::tie(plan.runs[i], plan.states[i]);
    table.rows.push_back({run.spec.id, state.placement, std::to_string(run.threads), state_text(state)});
  }
  return table;
}

// The runs of a cell, which differ in their seeds alone, have a row for each placement.
TextTable table_of_cells(const Plan& plan) {
  TextTable table{
      mapped(plan.columns, [](const CellColumn& column) { return TextTable::Column{column.title}; }), {}};
  for (const char* title : {"strategy", "placement"}) table.columns.push_back({title});
  table.columns.insert(table.columns.end(), {{"threads", true}, {"runs", true}, {"state"}});
  std::map<std::vector<std::string>, size_t> known;
  std::vector<std::map<std::string, int>> states;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    std::vector<std::string> key = name_of(plan.runs[i].spec, plan.columns).cell;
    key.insert(key.end(), {plan.states[i].placement, std::to_string(plan.runs[i].threads)});
    const auto [entry, is_new] = known.try_emplace(key, table.rows.size());
    if (is_new) {
      table.rows.push_back(key);
      states.emplace_back();
    }
    ++states[entry->second][state_text(plan.states[i])];
  }
  for (size_t i = 0; i < states.size(); ++i) {
    int runs = 0;
    for (const auto& [state, count] : states[i]) runs += count;
    const std::string text = states[i].size() == 1 ? states[i].begin()->first : counts_text(states[i]);
    table.rows[i].insert(table.rows[i].end(), {std::to_string(runs), text});
  }
  return table;
}

void print(const Plan& plan, bool every_run) {
  std::cout << (every_run ? table_of_runs(plan) : table_of_cells(plan)).text();
  print_reasons(plan);
  print_excluded(plan.experiment, every_run);
  std::map<std::string, int> done;
  for (const RunState& state : plan.states)
    if (!state.must_run && state.outcome == Status::ok) ++done[state.placement];
  std::cout << plan.to_start << " of " << plan.runs.size() << " runs to start";
  if (!done.empty()) std::cout << "; done on " << placements_text(done);
  if (plan.to_start > 0) {
    std::cout << "; expected time: "
              << (plan.seconds ? duration_text(*plan.seconds) : "unknown before a first run has finished");
  }
  if (plan.peak_memory_bytes)
    std::cout << "; largest peak of a rank's resident memory so far: " << mib_needed(*plan.peak_memory_bytes);
  if (plan.disk_bytes && plan.free_disk_bytes) {
    std::cout << "; disk: about " << mib_needed(*plan.disk_bytes) << " of " << mib_left(*plan.free_disk_bytes)
              << " that are free";
  }
  std::cout << "\n";
  if (const PoorestTower& poorest = plan.poorest; !poorest.site.empty()) {
    std::cout << "fewest values per channel in a tower's statistics: " << poorest.values << ", at "
              << poorest.site << " with " << poorest.samples
              << (poorest.samples == 1 ? " image of " : " images of ") << poorest.size[0] << "x"
              << poorest.size[1] << "\n";
  }
  for (const std::string& remark : plan.remarks) std::cerr << "note: " << remark << "\n";
}

// A line per run, for other programs: `bnlab run SPEC --only run=LINE` does it.
void print_todo(const Plan& plan) {
  std::set<std::string> printed;
  for (size_t i = 0; i < plan.runs.size(); ++i)
    if (plan.states[i].must_run && printed.insert(plan.runs[i].spec.id).second)
      std::cout << plan.runs[i].spec.id << "\n";
}

int plan(const PlanRequest& request) {
  const Plan plan = make_plan(request);
  if (request.json)
    std::cout << plan_json(plan).dump(2) << "\n";
  else if (request.todo)
    print_todo(plan);
  else
    print(plan, request.every_run);
  for (const std::string& message : plan.missing) std::cerr << "bnlab: " << message << "\n";
  for (const std::string& message : plan.misplaced) std::cerr << "bnlab: " << message << "\n";
  // Without a data folder the question was another one than whether the data are there.
  const bool lacks_data = !plan.missing.empty() && !request.launch.data_dir.empty();
  return lacks_data || plan.lacks_weights || !plan.misplaced.empty() ? exit_code::kUsage : exit_code::kOk;
}

const Command plan_command("plan", {Heading::start_here, 2},
                           "Show what `run` would do (same options, without --notify)",
                           "  bnlab plan quickstart --ranks 2\n"
                           "  bnlab plan nuclei_small_batch --only strategy=sync --json",
                           plan);

}  // namespace
}  // namespace bnlab
