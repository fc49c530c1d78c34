#include "harness/launch/data_judged.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <numeric>
#include <set>

#include "harness/experiment/fingerprint.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/support/json.hpp"
#include "harness/tasks/task_facts.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFile = ".data_checks";
constexpr const char* kRules = "bnlab data check 4";     // another number: what is judged has changed
constexpr int64_t kQuick = 16 << 20, kMuch = 256 << 20;  // bytes

// Answers by a hash of the question and the fingerprint.
class KeptReports {
 public:
  explicit KeptReports(const fs::path& results) : file_(results / kFile) {
    try {
      if (fs::exists(file_)) all_ = read_json(file_);
    } catch (const Error&) {
      // All is judged again.
    }
    if (!all_.is_object() || all_.value("rules", Json()) != kRules)
      all_ = {{"rules", kRules}, {"reports", Json::object()}};
  }

  static std::string key(const DataCheck& check, const Json& data) {
    return fingerprint(check.question + '\0' + data.at("fingerprint").get<std::string>());
  }

  // Nothing, too, for what is not as `keep` writes it.
  std::optional<DataReport> find(const std::string& key) const try {
    const Json& reports = all_.at("reports");
    if (!reports.contains(key)) return std::nullopt;
    DataReport report;
    for (const Json& fault : reports[key].at("faults"))
      report.faults.push_back({fault.at("kind"), fault.at("message")});
    report.facts = reports[key].at("facts").get<std::vector<std::string>>();
    report.training_samples = reports[key].at("training_samples");
    return report;
  } catch (const Json::exception&) {
    return std::nullopt;
  }

  void keep(const std::string& key, const DataReport& report) {
    Json faults = Json::array();
    for (const DataFault& fault : report.faults)
      faults.push_back({{"kind", fault.kind}, {"message", fault.message}});
    all_["reports"][key] = {
        {"faults", faults}, {"facts", report.facts}, {"training_samples", report.training_samples}};
    try {
      fs::create_directories(file_.parent_path());
      write_json(file_, all_);
    } catch (const std::exception&) {
      // All is judged again next time.
    }
  }

 private:
  fs::path file_;
  Json all_;
};

// Of all files below the folder that a task reads, where some that it needs are missing; no more than much.
int64_t bytes_below(const Json& task, const std::string& data_dir) {
  if (!task.contains("root")) return kMuch;
  int64_t bytes = 0;
  std::error_code none;
  for (fs::recursive_directory_iterator file(fs::path(data_dir) / task.at("root").get<std::string>(), none),
       end;
       !none && file != end && bytes < kMuch; file.increment(none)) {
    std::error_code gone;
    if (file->is_regular_file(gone)) bytes += static_cast<int64_t>(file->file_size(gone));
  }
  return bytes;
}

std::string refusal(const RunSpec& run, const std::vector<DataFault>& faults) {
  return "task " + run.task.at("name").get<std::string>() + ": " + std::to_string(faults.size()) +
         (faults.size() == 1 ? " fault" : " faults") + " in the data, nothing has started:\n" +
         text_of_faults(faults);
}

// A batch that is larger than the training set holds some samples twice.
void tell_small_sets(const PlacedRun& run, int64_t samples, std::vector<std::string>& facts) {
  const auto& towers = run.spec.samples_per_tower;
  const int64_t batch = std::accumulate(towers.begin(), towers.end(), int64_t{0});
  if (samples > 0 && samples < batch) {
    facts.push_back("the training set has " + std::to_string(samples) + " samples and a global batch " +
                    std::to_string(batch) + ": every step sees samples twice");
  }
}

}  // namespace

JudgedData judge_data(const std::vector<const PlacedRun*>& runs, const LaunchRequest& request,
                      bool only_quick) {
  std::map<std::string, std::optional<DataReport>> judged;  // by task
  KeptReports kept(request.results_dir);
  JudgedData all;
  std::set<std::string> refusals, remarks;
  const auto judge = [&](const PlacedRun& run) -> std::optional<DataReport> {
    const auto check = check_of_task(run.spec.task, request.data_dir);
    if (!check) return std::nullopt;
    const Json data = run.inputs.is_object() ? run.inputs.value("data", Json()) : Json();
    const std::string key = data.is_object() ? KeptReports::key(*check, data) : "";
    if (const auto known = data.is_object() ? kept.find(key) : std::nullopt) return known;
    const int64_t bytes =
        data.is_object() ? data.at("bytes").get<int64_t>() : bytes_below(run.spec.task, request.data_dir);
    if (only_quick && bytes > kQuick) {
      if (data.is_object()) {
        remarks.insert("the " + std::to_string(data.at("files").get<int64_t>()) +
                       " files of the data are read and judged by bnlab run, before its first run");
      }
      return std::nullopt;
    }
    if (bytes > kMuch)
      std::cerr << "note: looking at the contents of all data once, before the first run" << std::endl;
    DataReport report = check->look();
    if (!key.empty()) kept.keep(key, report);
    return report;
  };
  for (const PlacedRun* run : runs) {
    const auto [found, is_new] = judged.try_emplace(run->spec.task.dump());
    std::optional<DataReport>& report = found->second;
    if (is_new) {
      try {
        report = judge(*run);
      } catch (const std::exception&) {
        // What cannot even be listed is told by look_at_inputs.
      }
      if (report && !report->faults.empty()) refusals.insert(refusal(run->spec, report->faults));
    }
    std::vector<std::string>& facts = all.facts.emplace_back();
    if (report) {
      facts = report->facts;
      tell_small_sets(*run, report->training_samples, facts);
    }
    remarks.insert(facts.begin(), facts.end());
  }
  all.refusals.assign(refusals.begin(), refusals.end());
  all.remarks.assign(remarks.begin(), remarks.end());
  return all;
}

}  // namespace bnlab
