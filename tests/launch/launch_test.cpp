#include "harness/launch/launch.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "harness/launch/process.hpp"
#include "harness/queue/active_processes.hpp"
#include "harness/support/error.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;
using test::behaves;
using test::eventually;
using test::run;
using test::Scratch;

bool is_alive(pid_t id) {  // a zombie counts as dead
  std::ifstream in("/proc/" + std::to_string(id) + "/stat");
  std::string number, name;
  char state = 'Z';
  in >> number >> name >> state;
  return state != 'Z';
}

// The ids that the ranks of all runs wrote down.
std::vector<pid_t> rank_ids(const Scratch& scratch) {
  std::vector<pid_t> ids;
  std::error_code none;
  for (const auto& entry : fs::recursive_directory_iterator(scratch / "results", none)) {
    pid_t id = 0;
    if (entry.path().filename().string().rfind("pid", 0) == 0 && std::ifstream(entry.path()) >> id)
      ids.push_back(id);
  }
  return ids;
}

void expect_nobody_left(const Scratch& scratch, size_t ranks) {
  const auto ids = rank_ids(scratch);
  EXPECT_EQ(ids.size(), ranks);
  for (const pid_t id : ids)
    EXPECT_TRUE(eventually([&] { return !is_alive(id); })) << "rank process " << id << " is left";
}

TEST(Launch, CheckpointsStayUntilTheRunHasFinishedOrStartsFromTheBeginning) {
  for (const std::string redo : {"", "failed", "all"}) {
    const Scratch scratch;
    const bool finishes = redo.empty();
    const auto spec = scratch.write_spec(behaves(finishes ? "ok" : "exit"));
    run(spec, scratch.options(1));
    const fs::path folder = scratch.records().at(0).file().parent_path();
    fs::create_directories(folder / kCheckpointsFolder);
    for (const char* file : {"left", "checkpoints/step4.safetensors"})
      std::ofstream(folder / file) << "of the run before";
    LaunchRequest options = scratch.options(1);
    if (finishes)
      fs::remove(folder / kRecordFile);
    else
      options.redo = {redo};
    run(spec, options);
    EXPECT_FALSE(fs::exists(folder / "left"));
    EXPECT_EQ(fs::exists(folder / "checkpoints/step4.safetensors"), redo == "failed");
    EXPECT_EQ(fs::exists(folder / kCheckpointsFolder), redo == "failed");
  }
}

TEST(Launch, WritesARecordForEveryRunAndSkipsThemNextTime) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  const LaunchSummary first = run(spec, scratch.options(2));
  EXPECT_EQ(first.finished, 2);
  EXPECT_EQ(first.skipped, 0);
  const auto records = scratch.records();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].status(), Status::ok);
  EXPECT_EQ(records[0].placement(), "2x1-cpu");
  EXPECT_EQ(records[0].at("placement.launcher"), "bnlab");
  EXPECT_EQ(records[0].at("command"), "bnlab run fake.json");
  EXPECT_EQ(records[0].number("result.final.saved.mean_iou"), 0.5);
  const LaunchSummary second = run(spec, scratch.options(2));
  EXPECT_EQ(second.finished, 0);
  EXPECT_EQ(second.skipped, 2);
  expect_nobody_left(scratch, 4);
}

TEST(Launch, RanksThatShareAGpuAreEmulatedAndLoadTheirCodeEarly) {
  const Scratch scratch;
  setenv("FAKE_GPUS", "1", 1);
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  LaunchRequest options = scratch.options(2);
  options.device = Device::cuda;
  EXPECT_EQ(run(scratch.write_spec(behaves("ok")), options).finished, 1);
  unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  unsetenv("FAKE_GPUS");
  const auto records = scratch.records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].placement(), "2x1-cuda");
  EXPECT_EQ(records[0].at("placement.emulated"), true);
  EXPECT_EQ(records[0].at("environment.variables.CUDA_MODULE_LOADING"), "EAGER");
  EXPECT_EQ(records[0].at("environment.variables.NCCL_MAX_CTAS"), "4");
}

TEST(Launch, RanksThatLackGpusUseTheCpuAndTheirRecordSaysSo) {
  const Scratch scratch;
  setenv("FAKE_GPUS", "1", 1);
  LaunchRequest options = scratch.options(2);
  options.device = std::nullopt;
  EXPECT_EQ(run(scratch.write_spec(behaves("ok")), options).finished, 1);
  unsetenv("FAKE_GPUS");
  const auto records = scratch.records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].placement(), "2x1-cpu");
  EXPECT_NE(records[0].at("notes").dump().find("use the CPU, because there is 1 GPU"), std::string::npos);
}

TEST(Launch, ARankFindsItsPlaceThreadsAndSocket) {
  const Scratch scratch;
  LaunchRequest options = scratch.options(2);
  options.threads = 3;
  options.data_dir = "/data";
  run(scratch.write_spec(behaves("ok")), options);
  const Json seen = scratch.records().at(0).at("result.seen");
  EXPECT_EQ(seen.at("size"), 2);
  EXPECT_GT(seen.at("port").get<int>(), 0);
  EXPECT_EQ(seen.at("port"), seen.at("listening_port"));
  EXPECT_EQ(seen.at("prefix"), scratch.records()[0].run_id());
  EXPECT_EQ(seen.at("threads"), 3);
  EXPECT_EQ(seen.at("omp_threads"), "3");
  EXPECT_EQ(seen.at("wait_policy"), "PASSIVE");
  EXPECT_EQ(seen.at("data_dir"), "/data");
  EXPECT_EQ(scratch.records()[0].at("placement.threads_per_rank"), 3);
}

TEST(Launch, ARankInheritsNothingButItsSocketAndItsChannel) {
  const Scratch scratch;
  const int ours = dup(STDERR_FILENO);  // stands for any file that this process has open
  run(scratch.write_spec(behaves("ok")), scratch.options(2));
  close(ours);
  // Standard input, output and error, the socket, the channel.
  EXPECT_LE(scratch.records().at(0).at("result.seen.open_descriptors").get<int>(), 5);
}

TEST(Launch, ALoneRankNeedsNoSocket) {
  const Scratch scratch;
  run(scratch.write_spec(behaves("ok")), scratch.options(1));
  const Record record = scratch.records().at(0);
  EXPECT_EQ(record.placement(), "1x2-cpu");
  EXPECT_EQ(record.at("placement.emulated"), true);
  EXPECT_EQ(record.at("result.seen.port"), 0);
}

TEST(Launch, ANumberThatIsNotFiniteIsNullWithANote) {
  const Scratch scratch;
  run(scratch.write_spec(behaves("ok")), scratch.options(1));
  const Record record = scratch.records().at(0);
  EXPECT_TRUE(record.at("result.train_loss").is_null());
  EXPECT_NE(record.at("notes").dump().find("result.train_loss"), std::string::npos);
}

TEST(Launch, OfTheNotesOfARunThoseOnLostWorkAreSaid) {
  const Scratch scratch;
  testing::internal::CaptureStderr();
  run(scratch.write_spec(behaves("lose work")), scratch.options(2));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find(": the work of 20 steps was lost\n"), std::string::npos) << said;
  EXPECT_EQ(said.find("another note"), std::string::npos) << said;
  EXPECT_EQ(scratch.records().at(0).at("notes").at(1), "another note");
}

TEST(Launch, AKilledRankIsNamedWithItsSignalAndLogAndTheMatrixGoesOn) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(
      behaves("ok"), R"(, "matrix": {"task": [{"name": "fake", "behaviour": "kill"}, {"name": "fake"}]})");
  const LaunchSummary summary = run(spec, scratch.options(2));
  EXPECT_EQ(summary.killed, 1);
  EXPECT_EQ(summary.failed, 0);
  EXPECT_EQ(summary.finished, 1);
  for (const Record& record : scratch.records()) {
    if (record.status() == Status::ok) continue;
    EXPECT_EQ(record.status(), Status::interrupted) << "it starts again";
    EXPECT_EQ(record.at("outcome.rank"), 1);
    EXPECT_EQ(record.at("outcome.signal"), "SIGKILL");
    EXPECT_EQ(record.at("outcome.log_tail"), Json::array({"about to die"}));
    EXPECT_TRUE(record.at("result").is_null());
  }
  expect_nobody_left(scratch, 4);
}

TEST(Launch, AnExitWithoutAReportIsACrash) {
  const Scratch scratch;
  run(scratch.write_spec(behaves("exit")), scratch.options(1));
  const Record record = scratch.records().at(0);
  EXPECT_EQ(record.status(), Status::crashed);
  EXPECT_EQ(record.at("outcome.rank"), 0);
  EXPECT_TRUE(record.at("outcome.signal").is_null());
  EXPECT_EQ(record.at("outcome.log_tail"), Json::array({"a library gave up"}));
}

TEST(Launch, AStoppedRankIsATimeoutThatNamesItAndIsKilled) {
  const Scratch scratch;
  run(scratch.write_spec(behaves("stop")), scratch.options(2));
  const Record record = scratch.records().at(0);
  EXPECT_EQ(record.status(), Status::timeout);
  EXPECT_EQ(record.at("outcome.rank"), 1);
  expect_nobody_left(scratch, 2);
}

TEST(Launch, ATimeoutTellsWhatEveryRankWasDoing) {
  const Scratch scratch;
  run(scratch.write_spec(behaves("stop")), scratch.options(2));
  const std::string message = scratch.records().at(0).at("outcome.message");
  EXPECT_TRUE(
      message.ends_with("; when it ended, rank 0 waits at decoder1.norm2 forward of step 17 (all_gather); "
                        "rank 1 is in backward of step 16"))
      << message;
}

TEST(Launch, ARankThatNcclsWatchdogEndedIsNotTheOneAtFault) {
  const Scratch scratch;
  run(scratch.write_spec(behaves("stop on a GPU")), scratch.options(2));
  const Record record = scratch.records().at(0);
  EXPECT_EQ(record.status(), Status::timeout);
  EXPECT_EQ(record.at("outcome.rank"), 1);
  EXPECT_EQ(record.at("outcome.message"),
            "rank 1 did not answer (rank 0: Watchdog caught collective operation timeout: ALLREDUCE ran for "
            "60000 ms); when it ended, rank 0 is before the first step; rank 1 is in backward of step 16");
}

TEST(Launch, ARefusalIsAnErrorAndADivergenceKeepsItsResult) {
  const Scratch scratch;
  run(scratch.write_spec(behaves("refuse")), scratch.options(2));
  EXPECT_EQ(scratch.records().at(0).status(), Status::error);
  EXPECT_EQ(scratch.records()[0].at("outcome.message"), "this strategy refuses");
  fs::remove_all(scratch / "results");
  run(scratch.write_spec(behaves("diverge")), scratch.options(2));
  EXPECT_EQ(scratch.records().at(0).status(), Status::diverged);
  EXPECT_EQ(scratch.records()[0].at("result.steps"), 10);
}

TEST(Launch, ARunPastItsTimeLimitIsKilled) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("hang"), R"(, "timeout_s": 3)");
  EXPECT_EQ(run(spec, scratch.options(2)).failed, 1);
  EXPECT_EQ(scratch.records().at(0).status(), Status::timeout);
  expect_nobody_left(scratch, 2);
}

TEST(Launch, FailedRunsStartAgainOnlyOnRequestAndInACleanFolder) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("refuse"));
  LaunchRequest options = scratch.options(1);
  EXPECT_EQ(run(spec, options).failed, 1);
  const std::string left_over = scratch.records().at(0).file().parent_path() / "left_over";
  std::ofstream(left_over) << "x";
  EXPECT_EQ(run(spec, options).skipped, 1);
  EXPECT_TRUE(fs::exists(left_over));
  options.redo = {"failed"};
  EXPECT_EQ(run(spec, options).failed, 1);
  EXPECT_FALSE(fs::exists(left_over));
}

// Names of what lies beside a run's folder, in the folder of its id.
std::vector<std::string> beside(const fs::path& run_folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(run_folder.parent_path()))
    if (entry.path() != run_folder) names.push_back(entry.path().filename().string());
  return names;
}

TEST(Launch, AResultStaysUntilAnotherOneIsThere) {
  for (const bool replaced : {false, true}) {
    const Scratch scratch;
    const auto spec = scratch.write_spec(behaves(replaced ? "ok" : "exit"));
    LaunchRequest options = scratch.options(1);
    run(spec, options);
    const fs::path folder = scratch.records().at(0).file().parent_path();
    Json record = read_json(folder / kRecordFile);
    record["outcome"]["status"] = "ok";  // as if it failed by today's code alone
    write_json(folder / kRecordFile, record);
    std::ofstream(folder / kWeightsFile) << "of the run before";
    options.redo = {"all"};
    EXPECT_EQ(run(spec, options).failed, replaced ? 0 : 1);
    EXPECT_EQ(scratch.records().at(0).status(), Status::ok);
    EXPECT_EQ(fs::exists(folder / kWeightsFile), !replaced);
    EXPECT_TRUE(beside(folder).empty());
  }
}

TEST(Launch, RedoingTheFailedKeepsRunsThatWentWell) {
  const Scratch scratch;
  const auto spec = scratch.write_spec(behaves("ok"));
  LaunchRequest options = scratch.options(1);
  options.redo = {"failed"};
  EXPECT_EQ(run(spec, options).finished, 1);
  EXPECT_EQ(run(spec, options).skipped, 1);
}

TEST(Launch, JobsRunSideBySideAndAreRecorded) {
  const Scratch scratch;
  LaunchRequest options = scratch.options(1);
  options.jobs = 3;
  const auto spec = scratch.write_spec(behaves("ok"), R"(, "matrix": {"seed": [0, 1, 2, 3]})");
  EXPECT_EQ(run(spec, options).finished, 4);
  ASSERT_EQ(scratch.records().size(), 4U);
  EXPECT_EQ(scratch.records()[3].at("placement.jobs"), 3);
}

TEST(Launch, JobsSideBySideUseDifferentGpus) {
  const Scratch scratch;
  LaunchRequest options = scratch.options(2);
  options.device = Device::cuda;
  options.jobs = kAutoJobs;
  setenv("FAKE_GPUS", "4", 1);
  EXPECT_EQ(run(scratch.write_spec(behaves("ok"), R"(, "matrix": {"seed": [0, 1]})"), options).finished, 2);
  unsetenv("FAKE_GPUS");
  std::vector<int> first_gpus;
  for (const Record& record : scratch.records()) {
    first_gpus.push_back(record.at("result.seen.gpu_of_rank_0").get<int>());
    EXPECT_EQ(record.at("placement.jobs"), 2);
  }
  EXPECT_EQ(first_gpus, (std::vector<int>{0, 2}));
}

TEST(Launch, AProgramThatCannotStartIsAnError) {
  const Scratch scratch;
  LaunchRequest options = scratch.options(2);
  options.program = "/no/such/program";
  EXPECT_THROW(run(scratch.write_spec(behaves("ok")), options), Error);
  EXPECT_TRUE(scratch.records().empty());
}

TEST(Launch, AnInterruptStopsTheRanksAndTheNextCallGoesOn) {
  const Scratch scratch;
  const std::string matrix =
      R"(, "matrix": {"task": [{"name": "fake", "behaviour": "hang"}, {"name": "fake", "behaviour": "ok"}]})";
  const auto spec = scratch.write_spec(behaves("ok"), matrix);
  std::thread user([&] {
    eventually([&] { return rank_ids(scratch).size() == 2; });
    kill(getpid(), SIGINT);
  });
  const LaunchSummary summary = run(spec, scratch.options(2));
  user.join();
  EXPECT_TRUE(summary.interrupted);
  EXPECT_EQ(summary.finished + summary.failed, 0);
  expect_nobody_left(scratch, 2);
  LaunchRequest options = scratch.options(2);
  options.only = {"task.behaviour=ok"};
  EXPECT_EQ(run(spec, options).finished, 1);
}

// The other process starts after the run and ends before it.
TEST(Launch, OtherProcessesAreCountedWhileARunIsUnderWay) {
  const Scratch scratch;
  std::thread user([&] {
    eventually([&] { return rank_ids(scratch).size() == 1; });
    const pid_t other = fork();
    if (other == 0) {
      const ActiveProcesses active(scratch / "results");
      std::this_thread::sleep_for(std::chrono::seconds(6));
      kill(getpid(), SIGKILL);
    }
    waitpid(other, nullptr, 0);
    kill(getpid(), SIGINT);
  });
  run(scratch.write_spec(behaves("hang")), scratch.options(1));
  user.join();
  ASSERT_EQ(scratch.records().size(), 1U);
  EXPECT_EQ(scratch.records()[0].at("placement.jobs"), 2);
}

TEST(Launch, AnInterruptedRemakingTellsWhatIsLeftOfIt) {
  const Scratch scratch;
  const std::string matrix =
      R"(, "matrix": {"task": [{"name": "fake", "behaviour": "ok"}, {"name": "fake", "behaviour": "hang"}]})";
  const auto spec = scratch.write_spec(behaves("ok"), matrix);
  LaunchRequest options = scratch.options(1);
  options.redo = {"all"};
  std::thread user([&] {
    eventually([&] { return rank_ids(scratch).size() == 2; });
    kill(getpid(), SIGINT);
  });
  const LaunchSummary summary = run(spec, options);
  user.join();
  EXPECT_TRUE(summary.interrupted);
  ASSERT_EQ(summary.finished, 1);
  ASSERT_EQ(summary.to_remake.size(), 1U) << "the one that was made is not among them";
  EXPECT_EQ(*summary.to_remake.begin(), load_experiment(spec).runs.at(1).id);
}

TEST(Launch, RanksDieWithALauncherThatIsKilled) {
  const Scratch scratch;
  ChildCommand command;
  command.argv = {
      scratch.options(1).program, "run", scratch.write_spec(behaves("hang")), "--ranks", "2", "--results",
      scratch / "results"};
  command.log_file = scratch / "log";
  Process launcher(command);
  ASSERT_TRUE(eventually([&] { return rank_ids(scratch).size() == 2; }));
  launcher.send(SIGKILL);
  launcher.wait();
  expect_nobody_left(scratch, 2);
}

}  // namespace
}  // namespace bnlab
