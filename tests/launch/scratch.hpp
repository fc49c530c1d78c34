// A folder that goes away with the test, and a spec of fake runs in it.
#pragma once

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "harness/launch/launch.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/records.hpp"

namespace bnlab::test {

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "bnlab-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  // Two towers and the strategy `left` unless `more` says otherwise; `task` and `more` are JSON text.
  std::string write_spec(const std::string& task, const std::string& more = "") const {
    const std::string file = path_ + "/fake.json";
    std::ofstream(file) << R"({"task": )" << task << R"(, "model": "fake", "batch_per_tower": 2, "steps": 10)"
                        << (more.find("towers") == std::string::npos ? R"(, "towers": 2)" : "")
                        << (more.find("strategy") == std::string::npos ? R"(, "strategy": "left")" : "")
                        << more << "}";
    return file;
  }

  LaunchRequest options(int ranks) const {
    LaunchRequest options;
    options.ranks = ranks;
    options.device = Device::cpu;
    options.results_dir = path_ + "/results";
    options.command = "bnlab run fake.json";
    options.program = std::filesystem::read_symlink("/proc/self/exe").string();
    return options;
  }

  // As if the launchers of so many attempts at a run had been killed long ago.
  static void leave_attempts(const std::filesystem::path& run_folder, int attempts) {
    const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(24);
    for (int number = 1; number <= attempts; ++number) {
      std::ofstream(claim_file(run_folder, number)) << "{}";
      std::filesystem::last_write_time(claim_file(run_folder, number), long_ago);
    }
  }

  std::vector<Record> records() const { return list_records(path_ + "/results", "fake"); }

 private:
  std::string path_;
};

inline LaunchSummary run(const std::string& spec, const LaunchRequest& options) {
  return launch(load_experiment(spec), options);
}

// Waits for half a minute.
template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 3000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return condition();
}

inline std::string behaves(const std::string& behaviour) {
  return R"({"name": "fake", "behaviour": ")" + behaviour + "\"}";
}

}  // namespace bnlab::test
