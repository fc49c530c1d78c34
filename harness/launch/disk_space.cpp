#include "harness/launch/disk_space.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "harness/store/records.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

constexpr int kCheckpointsAtOnce = 3;
constexpr int kTensorsPerWeight = 3;

double bytes_in(const std::filesystem::path& folder) {
  double bytes = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    std::error_code gone;
    const auto size = entry.is_regular_file(gone) ? entry.file_size(gone) : 0;
    bytes += gone ? 0 : static_cast<double>(size);
  }
  return bytes;
}

// Of some finished runs.
struct Sizes {
  double folders = 0, weights = 0;
  int runs = 0;

  void add(double folder, double weights_file) {
    folders += folder;
    weights += weights_file;
    ++runs;
  }
};

}  // namespace

bool is_disk_full(double left, std::optional<double> need) {
  constexpr double kEnough = 64 << 20;
  return left < std::min(kEnough, need.value_or(kEnough));
}

std::optional<double> disk_need(const std::vector<const RunSpec*>& runs, const std::vector<Record>& records,
                                int side_by_side) {
  std::map<std::string, Sizes> by_model;
  Sizes all;
  for (const Record& record : records) {
    if (record.status() != Status::ok) continue;
    const double there = bytes_in(record.folder());  // nothing of a run that is kept in the ledger
    const double folder = there > 0 ? there : static_cast<double>(record.json().dump().size());
    const double weights = record.number("result.memory.weights_bytes").value_or(0);
    by_model[record.at("spec.model").dump()].add(folder, weights);
    all.add(folder, weights);
  }
  if (all.runs == 0) return std::nullopt;
  double folders = 0;
  std::vector<double> checkpoints;
  for (const RunSpec* run : runs) {
    const auto found = by_model.find(run->resolved.at("model").dump());
    const Sizes& like = found == by_model.end() ? all : found->second;
    folders += like.folders / like.runs;
    checkpoints.push_back(
        run->checkpoint_every > 0 ? kCheckpointsAtOnce * kTensorsPerWeight * like.weights / like.runs : 0);
  }
  std::ranges::sort(checkpoints, std::greater());
  checkpoints.resize(std::min(checkpoints.size(), static_cast<size_t>(side_by_side)));
  for (const double bytes : checkpoints) folders += bytes;
  return folders;
}

std::optional<double> free_disk(const std::string& results) {
  std::filesystem::path folder = std::filesystem::absolute(results);
  while (!std::filesystem::exists(folder) && folder.has_relative_path()) folder = folder.parent_path();
  std::error_code unknown;
  const auto space = std::filesystem::space(folder, unknown);
  return unknown ? std::nullopt : std::optional(static_cast<double>(space.available));
}

std::string mib_needed(double bytes) {
  return fixed(std::ceil(bytes / (1 << 20)), 0) + " MiB";
}

std::string mib_left(double bytes) {
  return fixed(std::floor(bytes / (1 << 20)), 0) + " MiB";
}

void look_at_disk(const Experiment& experiment, const std::vector<PlacedRun>& start,
                  const LaunchRequest& request, std::vector<std::string>& remarks) {
  const std::string& results = request.results_dir;
  std::error_code unknown;
  std::filesystem::create_directories(results, unknown);
  const std::optional<double> left = free_disk(results);
  const std::string cure = "; free some, or name another folder with --results";
  const std::vector<const RunSpec*> runs = mapped(start, [](const PlacedRun& run) { return &run.spec; });
  const auto need = disk_need(runs, list_records(results, experiment.name), request.jobs);
  if (left && is_disk_full(*left, need)) {
    throw Error(Error::Kind::environment, results + ": " + mib_left(*left) +
                                              " of disk are left, too few for records and weights" +
                                              (need ? ", which take about " + mib_needed(*need) : "") + cure);
  }
  if (left && need && *need > *left) {
    remarks.push_back("the runs to start will take about " + mib_needed(*need) +
                      " of disk, as far as finished ones tell, and " + mib_left(*left) + " are left in " +
                      results + cure);
  }
}

}  // namespace bnlab
