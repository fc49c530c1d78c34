// What a device spends training steps on.
#include "harness/probe/profiled.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "harness/probe/probe.hpp"
#include "harness/store/record.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::profiled_test {
namespace {

TEST(SharesOfWork, CountOverlapOnceAndOwnTimeWithoutWhatIsInside) {
  // Two steps of 1 us: NCCL on a stream of its own, half beside others; an operator in another one; 100 ns of
  // nothing at the end of the first.
  std::vector<DeviceWork> work;
  for (const int64_t at : {0, 1000}) {
    work.push_back({"inner", 1, at + 100, at + 300});
    work.push_back({"outer", 1, at, at + 500});
    work.push_back({"ncclDevKernel", 2, at + 300, at + 700});
    work.push_back({"last", 1, at + 700, at + (at == 0 ? 900 : 1000)});
  }
  const Json shares = shares_of_work(work, 2);
  EXPECT_NEAR(shares.at("step_s"), 1e-6, 1e-15);
  EXPECT_NEAR(shares.at("idle_s"), 0.05e-6, 1e-15);
  EXPECT_NEAR(shares.at("nccl_s"), 0.4e-6, 1e-15);
  EXPECT_NEAR(shares.at("nccl_alone_s"), 0.2e-6, 1e-15);
  std::map<std::string, double> own;
  for (const Json& row : shares.at("work")) {
    own[row.at("name")] = row.at("own_s");
    EXPECT_EQ(row.at("count"), 1);
  }
  EXPECT_EQ(shares.at("work").at(0).at("name"), "ncclDevKernel");
  EXPECT_NEAR(own.at("outer"), 0.3e-6, 1e-15);
  EXPECT_NEAR(own.at("inner"), 0.2e-6, 1e-15);
  EXPECT_NEAR(own.at("last"), 0.25e-6, 1e-15);
}

TEST(ProfiledSteps, NameTheOperatorsOfACpu) {
  prepare_to_measure(1);
  const TemporaryFolder folder;
  const std::string spec = folder.path() / "spec.json", file = folder.path() / "trace.json";
  std::ofstream(spec) << R"({"task": {"name": "shapes", "size": [16, 16], "train": 16, "test": 4},
    "model": {"name": "unet", "base": 4, "levels": 2}, "strategy": "per_tower", "steps": 3, "towers": 2,
    "batch_per_tower": 2})";
  const RunSpec run = load_experiment(spec).runs.front();
  const Json shares = profiled_steps(run, {}, Device::cpu, "", 2, 3, file).at(0);
  EXPECT_GT(shares.at("step_s"), shares.at("idle_s"));
  EXPECT_EQ(shares.at("nccl_s"), 0);
  double convolutions = 0, own = 0;
  for (const Json& row : shares.at("work")) {
    own += row.at("own_s").get<double>();
    if (row.at("name") == "aten::convolution_backward") convolutions = row.at("count");
  }
  EXPECT_EQ(convolutions, 7);  // two in each of three blocks, and the last
  EXPECT_NEAR(own, shares.at("step_s").get<double>() - shares.at("idle_s").get<double>(), 1e-6);
  EXPECT_TRUE(read_json(file).contains("traceEvents"));
}

}  // namespace
}  // namespace bnlab::profiled_test
