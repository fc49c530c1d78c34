// Spec files in a folder of their own, and what loading them says.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/support/error.hpp"

namespace bnlab {

class SpecFiles : public testing::Test {
 protected:
  SpecFiles() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              ("bnlab_spec_" + std::to_string(getpid()) + "_" + test->name());
    std::filesystem::create_directories(folder_);
  }
  ~SpecFiles() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }

  // A complete, correct spec with `more` at its end.
  static std::string spec(const std::string& more = "") {
    return R"({"task": "fake_shapes", "model": "fake_net", "strategy": "fake_pooled", "towers": 4,
               "batch_per_tower": 2, "steps": 10)" +
           (more.empty() ? "" : ", " + more) + "}";
  }

  Experiment load(const std::string& text) const { return load_experiment(write("spec.json", text)); }
  RunSpec load_one(const std::string& text) const { return load(text).runs.at(0); }

  // The lines of the error that a file ends in, with the folder's path taken out; empty if it loads.
  std::vector<std::string> mistakes_of(const std::string& file) const {
    std::vector<std::string> lines;
    try {
      load_experiment(file);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::spec);
      std::istringstream stream(error.what());
      for (std::string line; std::getline(stream, line);) {
        for (size_t at = line.find(folder_.string() + "/"); at != std::string::npos;
             at = line.find(folder_.string() + "/")) {
          line.erase(at, folder_.string().size() + 1);
        }
        lines.push_back(line);
      }
    }
    return lines;
  }
  std::vector<std::string> mistakes(const std::string& text) const {
    return mistakes_of(write("spec.json", text));
  }

  std::filesystem::path folder_;
};

using Lines = std::vector<std::string>;

}  // namespace bnlab
