#include "harness/report/status.hpp"

#include <algorithm>

#include "harness/store/attempts.hpp"
#include "harness/store/environment.hpp"
#include "harness/store/records.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

std::string recorded_text(const Record& record, const std::string& path) {
  const Json& value = record.at(path);
  return value.is_string() ? value.get<std::string>() : "";
}

std::string reason_of(const Record& record) {
  const std::string message = recorded_text(record, "outcome.message");
  if (!message.empty()) return message.substr(0, message.find('\n'));
  const std::string signal = recorded_text(record, "outcome.signal");
  return signal.empty() ? "no reason is recorded" : "ended by " + signal;
}

void count(const std::vector<const Record*>& of_one_run, RunCounts& counts) {
  if (of_one_run.empty()) return;
  const Record& best = **std::ranges::min_element(
      of_one_run, [](const Record* one, const Record* other) { return counts_before(*one, *other); });
  ++counts.outcomes[name(best.status())];
  if (best.status() == Status::ok) ++counts.done_on[best.placement()];
  counts.finished += best.finished();
  counts.failed += best.failed();
  counts.disturbed += std::ranges::any_of(
      of_one_run, [](const Record* one) { return one->disturbed() && !one->timed_elsewhere(); });
  if (const std::string why = best.why_stopped_early(); !why.empty()) ++counts.stopped_early[why];
  if (best.failed()) add_failure(best, counts.failures);
  counts.confirmed += best.confirmed();
  counts.other_sources += best.finished() && best.why_other_numerics().empty() &&
                          best.at("code.fingerprint") != code_version().at("fingerprint");
  if (!best.finished() || !best.stale()) return;
  ++counts.stale;
  ++counts.stale_reasons[best.why_stale()];
}

}  // namespace

std::string placements_text(const std::map<std::string, int>& done_on) {
  if (done_on.size() == 1) return done_on.begin()->first;
  return joined(mapped(done_on, [](const auto& of) { return of.first + " " + std::to_string(of.second); }));
}

void add_failure(const Record& record, std::vector<Failure>& failures) {
  const std::string reason = reason_of(record);
  const auto alike = std::ranges::find_if(failures, [&](const Failure& known) {
    return known.status == record.status() && known.message == reason;
  });
  if (alike != failures.end()) {
    ++alike->runs;
    return;
  }
  failures.push_back({.status = record.status(),
                      .message = reason,
                      .runs = 1,
                      .run_id = record.run_id(),
                      .folder = record.folder().generic_string()});
}

std::vector<std::string> failure_lines(std::vector<Failure> failures) {
  std::ranges::stable_sort(failures, std::ranges::greater(), &Failure::runs);
  return mapped(failures, [](const Failure& failure) {
    return std::to_string(failure.runs) + " " + name(failure.status) + ": " + failure.message + " (" +
           (failure.runs > 1 ? "such as " : "") + failure.run_id + ")";
  });
}

Json failures_json(const std::vector<Failure>& failures) {
  return mapped(failures, [](const Failure& failure) {
    return Json{{"outcome", name(failure.status)},
                {"message", failure.message},
                {"runs", failure.runs},
                {"run_id", failure.run_id},
                {"folder", failure.folder}};
  });
}

RunCounts count_runs(const Experiment& experiment, const std::vector<Record>& records) {
  RunCounts counts;
  counts.asked = static_cast<int>(experiment.runs.size());
  auto index = by_run_id(records);
  for (const auto& [id, found] : index) {
    counts.others += std::ranges::find(experiment.runs, id, &RunSpec::id) == experiment.runs.end() &&
                     std::ranges::any_of(found, &Record::finished);
  }
  for (const RunSpec& run : experiment.runs) {
    std::vector<const Record*> found = index[run.id];
    std::erase_if(found, [&](const Record* record) { return !is_of(*record, run); });
    count(found, counts);
  }
  return counts;
}

ExperimentStatus status_of(const Experiment& experiment, const std::filesystem::path& results) {
  ExperimentStatus status;
  status.experiment = experiment.name;
  const std::vector<Record> records = list_records(results, experiment.name, &status.problems);
  static_cast<RunCounts&>(status) = count_runs(experiment, records);
  status.claimed = claimed_runs(results, experiment.name, &status.problems);
  return status;
}

ExperimentStatus status_of(const std::string& experiment, const std::filesystem::path& results) {
  ExperimentStatus status;
  status.experiment = experiment;
  for (const Record& record : list_records(results, experiment, &status.problems)) count({&record}, status);
  status.asked = static_cast<int>(begun_folders(results, experiment).size());
  status.claimed = claimed_runs(results, experiment, &status.problems);
  return status;
}

std::string status_text(const std::vector<ExperimentStatus>& all) {
  TextTable table{{{"experiment"},
                   {"runs", true},
                   {"ok", true},
                   {"failed", true},
                   {"missing", true},
                   {"stale", true},
                   {"outcomes"},
                   {"done on"}},
                  {}};
  std::string reasons, stopped, disturbed, stale, others, confirmed, other_sources, under_way, problems;
  for (const ExperimentStatus& status : all) {
    table.rows.push_back({status.experiment, std::to_string(status.asked), std::to_string(status.ok()),
                          std::to_string(status.failed), std::to_string(status.missing()),
                          std::to_string(status.stale), counts_text(status.outcomes),
                          placements_text(status.done_on)});
    const std::string of = status.experiment + ": ";
    const auto count = [&](std::string& text, int runs) {
      if (runs > 0) text += of + std::to_string(runs) + "\n";
    };
    count(disturbed, status.disturbed);
    count(others, status.others);
    count(confirmed, status.confirmed);
    count(other_sources, status.other_sources);
    if (!status.stopped_early.empty()) stopped += of + counts_text(status.stopped_early) + "\n";
    for (const auto& [reason, runs] : status.stale_reasons)
      stale += wrapped(of + std::to_string(runs) + " stale: " + reason);
    for (const std::string& line : failure_lines(status.failures)) reasons += wrapped(of + line);
    for (const ClaimedRun& run : status.claimed) under_way += of + run.sentence() + "\n";
    for (const std::string& problem : status.problems) problems += "damaged: " + problem + "\n";
  }
  const auto section = [](const std::string& title, const std::string& lines) {
    return lines.empty() ? "" : "\n" + title + ":\n" + lines;
  };
  return table.text() + section("Runs under way", under_way) + section("Failed runs", reasons) +
         section("Runs that stop_early ended; they count, with their evaluation at that step", stopped) +
         section(
             "Runs that were timed while others used the machine (bnlab run SPEC --redo disturbed times "
             "them again)",
             disturbed) +
         section("Stale runs (bnlab run SPEC --redo stale starts them again)", stale) +
         section(std::string("Finished runs") + kOfOtherSpecs, others) +
         section(std::string("Runs") + kConfirmed, confirmed) +
         section(
             "Runs by sources that have changed since; the committed numbers of what they compute have not "
             "(bnlab panel shows whether this program computes them)",
             other_sources) +
         problems;
}

Json status_json(const std::vector<ExperimentStatus>& all) {
  return mapped(all, [](const ExperimentStatus& status) {
    return Json{{"experiment", status.experiment},
                {"total", status.asked},
                {"finished", status.finished},
                {"ok", status.ok()},
                {"failed", status.failed},
                {"missing", status.missing()},
                {"disturbed", status.disturbed},
                {"stale", status.stale},
                {"stale_reasons", Json(status.stale_reasons)},
                {"stopped_early", Json(status.stopped_early)},
                {"others", status.others},
                {"confirmed", status.confirmed},
                {"other_sources", status.other_sources},
                {"outcomes", Json(status.outcomes)},
                {"done_on", Json(status.done_on)},
                {"failures", failures_json(status.failures)},
                {"running", mapped(status.claimed, [](const ClaimedRun& run) { return run.json(); })},
                {"problems", status.problems}};
  });
}

}  // namespace bnlab
