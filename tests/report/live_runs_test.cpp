#include "harness/report/live.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>

#include "harness/store/attempts.hpp"
#include "harness/store/run_folder.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::live_runs_test {
namespace {

namespace fs = std::filesystem;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class LiveRuns : public ::testing::Test {
 protected:
  // A run of 100 steps that has done 40 of them in 20 seconds.
  fs::path begin(const std::string& name) {
    const fs::path folder = results_.path() / "exp" / name / "2x4-cpu";
    fs::create_directories(folder);
    std::ofstream(folder / "job.json") << R"({"spec": {"steps": 100, "epochs": null}})";
    std::ofstream(folder / "metrics.jsonl")
        << R"({"kind":"start","schema_version":1,"time_s":0.1})"
        << "\n"
        << R"({"kind":"train","step":20,"epoch":1,"loss":1.0,"time_s":10})"
        << "\n"
        << R"({"kind":"eval","step":20,"population":"saved","metrics":{"mean_iou":0.25,"class_iou":[1]},"time_s":11})"
        << "\n"
        << R"({"kind":"eval","step":20,"population":"batch","metrics":{"mean_iou":0.75},"time_s":12})"
        << "\n"
        << R"({"kind":"train","step":40,"epoch":2,"loss":0.5,"time_s":20})"
        << "\n"
        << R"({"kind":"train","step":60,"ep)";
    return folder;
  }
  TemporaryFolder results_;
};

TEST_F(LiveRuns, TheCurveOfOneThatGoesOnIsReadAgain) {
  const RunSpec run = synthetic_run("sync", 8, 2, 0);
  const fs::path folder = run_folder(results_.path(), "small_batch", run.id, {1, 8, Device::cpu});
  fs::create_directories(folder);
  const auto write = [&](Status status, const std::string& log) {
    RunAccount account = synthetic_account(run, 0.5, 1);
    account.outcome.status = status;
    write_json(folder / kRecordFile, compose_record(account));
    std::ofstream(folder / kMetricsFile, std::ios::app) << log;
  };
  EndedRuns known;
  const auto loss = [&] { return look_at("small_batch", results_.path(), nullptr, &known).runs.at(0).loss; };
  write(Status::interrupted, "");
  EXPECT_TRUE(loss().empty());
  write(Status::ok, "{\"kind\":\"train\",\"step\":20,\"epoch\":1,\"loss\":1.0,\"time_s\":10}\n");
  EXPECT_EQ(loss().size(), 1u);
}

TEST_F(LiveRuns, TellHowFarTheyAreFromTheirLogs) {
  begin("sync-8x2-seed0");
  const std::vector<LiveRun> runs = live_runs(results_.path(), "exp");
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].step, 40);
  EXPECT_EQ(runs[0].steps, 100);
  EXPECT_EQ(runs[0].loss, (LiveRun::Points{{20, 1.0}, {40, 0.5}}));
  EXPECT_EQ(runs[0].metric_name, "saved mean_iou");
  EXPECT_EQ(runs[0].metric, (LiveRun::Points{{20, 0.25}}));
  EXPECT_NEAR(runs[0].seconds_left().value(), 30, 1e-9);  // 20 s for two fifths
  EXPECT_EQ(live_line(runs[0]),
            "sync-8x2-seed0 2x4-cpu  step 40/100  30 s left  loss 0.5  saved mean_iou 0.25");
}

// What others have left in place of a log and of what was asked is told, and stops nothing.
TEST_F(LiveRuns, AreReadWhateverLiesInTheirFolders) {
  const fs::path odd = begin("sync-8x2-seed0"), pipes = begin("sync-8x2-seed1");
  std::ofstream(odd / "job.json") << R"({"spec": {"strategy": {"name": 5}}})";
  std::ofstream(odd / "metrics.jsonl") << R"({"kind":5})"
                                       << "\n"
                                       << R"({"kind":"train","step":"x"})"
                                       << "\n"
                                       << R"({"kind":"train","step":20,"loss":1.0})"
                                       << "\n";
  for (const char* name : {"job.json", "metrics.jsonl"}) {
    fs::remove(pipes / name);
    ASSERT_EQ(::mkfifo((pipes / name).c_str(), 0666), 0);
  }
  const std::vector<LiveRun> runs = live_runs(results_.path(), "exp");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].step, 20);
  EXPECT_TRUE(has(runs[0].damaged, "metrics.jsonl:1: expected a JSON object")) << runs[0].damaged;
  EXPECT_TRUE(has(runs[1].damaged, "metrics.jsonl: it is no ordinary file")) << runs[1].damaged;
}

TEST_F(LiveRuns, WorkInHiddenFolders) {
  const fs::path folder = begin("sync-8x2-seed0");
  fs::rename(folder, folder.parent_path() / ".2x4-cpu.attempt.2");
  EXPECT_TRUE(live_runs(results_.path(), "exp").empty()) << "nobody works there";
  std::ofstream(claim_file(folder, 2)) << "{}";
  EXPECT_EQ(list_experiments(results_.path()), std::vector<std::string>{"exp"});
  const std::vector<LiveRun> runs = live_runs(results_.path(), "exp");
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].placement, "2x4-cpu");
  EXPECT_EQ(runs[0].step, 40);
}

TEST_F(LiveRuns, AreThoseWithoutARecord) {
  std::ofstream(begin("ended") / "record.json") << "{}";
  fs::create_directories(results_.path() / "exp" / "just_begun" / "1x8-cpu");
  const std::vector<LiveRun> runs = live_runs(results_.path(), "exp");
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].run_id, "just_begun");
  EXPECT_EQ(runs[0].seconds_left(), std::nullopt);
}

TEST_F(LiveRuns, AFaultIsSeen) {
  const fs::path folder = begin("diverging");
  std::ofstream(folder / "metrics.jsonl", std::ios::app)
      << "\n"
      << R"({"kind":"train","step":80,"epoch":2,"loss":null,"time_s":21})"
      << "\n";
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(2);
  for (const auto& entry : fs::directory_iterator(folder)) fs::last_write_time(entry, long_ago);
  fs::last_write_time(folder, long_ago);
  const std::string page = live_text({look_at("exp", results_.path(), nullptr, nullptr)}, 100);
  EXPECT_TRUE(has(page, "! the loss is not finite; no word for 2 h 0 min: it may be dead")) << page;
}

TEST_F(LiveRuns, ThePageFitsTheTerminal) {
  begin("sync-8x2-seed0-0123456789ab-with-a-long-name-that-goes-on-and-on-and-on");
  LiveExperiment seen = look_at("exp", results_.path(), nullptr, nullptr);
  seen.status.failures = {{Status::error, std::string(300, 'x'), 1, "run", "folder"}};
  const std::string page = live_text({seen}, 60);
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; });
    EXPECT_LE(columns, 60) << line;
  }
  EXPECT_TRUE(has(page, "\u2588\u2581  0.5")) << page;  // the loss, from 1 down to 0.5
}

TEST(Sparkline, ScalesToItsValuesAndAveragesWhatDoesNotFit) {
  EXPECT_EQ(sparkline({0, 7, 3.5}, 10), "\u2581\u2588\u2585");
  EXPECT_EQ(sparkline({0, 0, 7, 7}, 2), "\u2581\u2588");
  EXPECT_EQ(sparkline({2, 2}, 10), "\u2581\u2581");
  EXPECT_EQ(sparkline({}, 10), "");
}

}  // namespace
}  // namespace bnlab::live_runs_test
