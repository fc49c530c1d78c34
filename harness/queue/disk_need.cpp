#include "harness/queue/disk_need.hpp"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

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

std::optional<double> disk_need(const std::vector<const RunSpec*>& runs, const std::vector<Record>& records,
                                int side_by_side) {
  std::map<std::string, Sizes> by_model;
  Sizes all;
  for (const Record& record : records) {
    if (record.status() != Status::ok) continue;
    const double folder = bytes_in(record.file().parent_path());
    const double weights = record.number("result.memory.weights_bytes").value_or(0);
    by_model[record.at("spec.model").dump()].add(folder, weights);
    all.add(folder, weights);
  }
  if (all.runs == 0) return std::nullopt;
  double folders = 0;
  std::vector<double> checkpoints;  // of each run
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

}  // namespace bnlab
