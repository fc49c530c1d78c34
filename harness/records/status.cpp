#include "harness/records/status.hpp"

#include "harness/records/run_folder.hpp"
#include "harness/records/text_table.hpp"

namespace bnlab {
namespace {

void count(const Record& record, ExperimentStatus& status) {
  ++status.outcomes[name(record.status())];
  if (!record.finished()) return;
  ++status.finished;
  status.failed += record.failed();
  status.stale += record.stale();
}

// Of several placements of one run the best counts: ok before failed before interrupted.
int rank_of(const Record& record) {
  return record.status() == Status::ok ? 2 : record.finished() ? 1 : 0;
}

}  // namespace

ExperimentStatus status_of(const Experiment& experiment, const std::filesystem::path& results) {
  ExperimentStatus status;
  status.experiment = experiment.name;
  const std::vector<Record> records = list_records(results, experiment.name, &status.problems);
  const auto index = by_run_id(records);
  for (const RunSpec& run : experiment.runs) {
    ++status.total;
    const auto found = index.find(run.id);
    if (found == index.end()) continue;
    const Record* best = nullptr;
    for (const Record* record : found->second) {
      if (is_of(*record, run) && (best == nullptr || rank_of(*record) > rank_of(*best))) best = record;
    }
    if (best != nullptr) count(*best, status);
  }
  status.missing = status.total - status.finished;
  return status;
}

ExperimentStatus status_of(const std::string& experiment, const std::filesystem::path& results) {
  ExperimentStatus status;
  status.experiment = experiment;
  for (const Record& record : list_records(results, experiment, &status.problems)) count(record, status);
  status.total = static_cast<int>(run_folders(results, experiment).size());
  status.missing = status.total - status.finished;
  return status;
}

std::string status_text(const std::vector<ExperimentStatus>& all) {
  TextTable table{{{"experiment"},
                   {"runs", true},
                   {"finished", true},
                   {"failed", true},
                   {"missing", true},
                   {"stale", true},
                   {"outcomes"}},
                  {}};
  std::string problems;
  for (const ExperimentStatus& status : all) {
    std::string outcomes;
    for (const auto& [outcome, runs] : status.outcomes) {
      outcomes += (outcomes.empty() ? "" : ", ") + std::to_string(runs) + " " + outcome;
    }
    table.rows.push_back({status.experiment, std::to_string(status.total), std::to_string(status.finished),
                          std::to_string(status.failed), std::to_string(status.missing),
                          std::to_string(status.stale), outcomes});
    for (const std::string& problem : status.problems) problems += "damaged record: " + problem + "\n";
  }
  return table.text() + problems;
}

Json status_json(const std::vector<ExperimentStatus>& all) {
  Json list = Json::array();
  for (const ExperimentStatus& status : all) {
    Json outcomes = Json::object();
    for (const auto& [outcome, runs] : status.outcomes) outcomes[outcome] = runs;
    list.push_back({{"experiment", status.experiment},
                    {"total", status.total},
                    {"finished", status.finished},
                    {"failed", status.failed},
                    {"missing", status.missing},
                    {"stale", status.stale},
                    {"outcomes", outcomes},
                    {"problems", status.problems}});
  }
  return list;
}

}  // namespace bnlab
