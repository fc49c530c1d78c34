#include "harness/queue/disk_need.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

class DiskNeed : public ::testing::Test {
 protected:
  // A finished run of a model whose folder holds so many bytes, some of them weights.
  Record finished(RunSpec run, int base, size_t bytes, int64_t weights) {
    run.resolved["model"]["base"] = base;
    RunAccount account = synthetic_account(run, 0.5, 1);
    account.result["memory"]["weights_bytes"] = weights;
    const auto folder = folder_.path() / std::to_string(folders_++);
    std::filesystem::create_directories(folder / "checkpoints");
    std::ofstream(folder / "weights.safetensors") << std::string(bytes, 'x');
    return Record(compose_record(account), folder / "record.json");
  }
  static RunSpec asked(int base, int64_t checkpoint_every = 0) {
    RunSpec run = synthetic_run("sync", 8, 2, 0);
    run.resolved["model"]["base"] = base;
    run.checkpoint_every = checkpoint_every;
    return run;
  }
  TemporaryFolder folder_;
  int folders_ = 0;
};

TEST_F(DiskNeed, IsThatOfFinishedRunsOfTheSameModel) {
  const RunSpec run = synthetic_run("sync", 8, 2, 0);
  const std::vector<Record> records = {finished(run, 8, 1000, 800), finished(run, 8, 3000, 800),
                                       finished(run, 16, 8000, 6000),
                                       synthetic_failure(run, Status::crashed, 1)};
  const RunSpec small = asked(8), large = asked(16), unknown = asked(64);
  EXPECT_EQ(disk_need({&small, &small}, records, 1), 4000);
  EXPECT_EQ(disk_need({&small, &large}, records, 1), 10000);
  EXPECT_EQ(disk_need({&unknown}, records, 1), 4000) << "the mean of all";
  EXPECT_EQ(disk_need({&small}, {}, 1), std::nullopt);
  EXPECT_EQ(disk_need({}, records, 1), 0);
}

TEST_F(DiskNeed, CountsCheckpointsOfTheLargestRunsThatGoSideBySide) {
  const RunSpec run = synthetic_run("sync", 8, 2, 0);
  const std::vector<Record> records = {finished(run, 8, 1000, 600), finished(run, 8, 1000, 1000),
                                       finished(run, 16, 8000, 6000)};
  const RunSpec small = asked(8, 100), large = asked(16, 100), without = asked(16);
  EXPECT_EQ(disk_need({&small, &large, &without}, records, 1), 17000 + 9 * 6000);
  EXPECT_EQ(disk_need({&small, &large, &without}, records, 8), 17000 + 9 * 6000 + 9 * 800);
}

}  // namespace
}  // namespace bnlab
