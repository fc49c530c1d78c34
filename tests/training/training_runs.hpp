// Small training runs for tests: a spec from a few keys, its ranks as threads of this process, and what they
// leave.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/support/json.hpp"
#include "harness/training/rank.hpp"

namespace bnlab {

struct TrainedRun {
  std::filesystem::path folder;
  std::vector<double> losses;                 // as they were reported
  std::map<std::string, at::Tensor> tensors;  // of weights.safetensors
  std::map<std::string, at::Tensor> pairs;    // of populations.safetensors; empty if there is none
  Json result;
  std::vector<std::string> notes;
};

class TrainingRuns {
 public:
  // `data_dir`: of tasks that read files.
  explicit TrainingRuns(std::string data_dir = "");
  ~TrainingRuns();

  // 5 steps of 4 towers x 2 images in float64, with these keys added or replaced.
  static RunSpec spec(const Json& keys = Json::object());

  // Trains on this many ranks and expects each of them to end well.
  TrainedRun run(const RunSpec& spec, int ranks, Device device = Device::cpu);
  // The same in a folder that may hold checkpoints.
  TrainedRun run_in(const std::filesystem::path& folder, const RunSpec& spec, int ranks,
                    Device device = Device::cpu);
  // Trains likewise, but expects nothing, and returns the report of every rank.
  std::vector<RankReport> reports(const RunSpec& spec, int ranks, const std::filesystem::path& folder,
                                  Device device = Device::cpu);
  std::filesystem::path new_folder();

 private:
  std::string data_dir_;
  std::filesystem::path folder_;
  int runs_ = 0;
};

// Expect that two runs agree to the bit, or to a bound.
void expect_equal(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b);
void expect_near(const std::map<std::string, at::Tensor>& a, const std::map<std::string, at::Tensor>& b,
                 double bound);

// The tensors without the running statistics, and the running statistics alone.
std::map<std::string, at::Tensor> parameters_of(const TrainedRun& run);
std::map<std::string, at::Tensor> statistics_of(const TrainedRun& run);

}  // namespace bnlab
