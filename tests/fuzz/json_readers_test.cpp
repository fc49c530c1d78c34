// Readers of JSON that others wrote, on damaged files. What a reader leaves aside instead of throwing, it
// describes, and the description names the file, too.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "harness/components/words.hpp"
#include "harness/experiment/run.hpp"
#include "harness/prediction/clusters.hpp"
#include "harness/prediction/fabric.hpp"
#include "harness/prediction/validation.hpp"
#include "harness/queue/claims.hpp"
#include "harness/report/report.hpp"
#include "harness/report/status.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/declarations.hpp"
#include "harness/store/inputs.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/metrics_log.hpp"
#include "harness/store/records.hpp"
#include "harness/store/schema.hpp"
#include "harness/transfer/keeping.hpp"
#include "tests/fuzz/mutations.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary) << text;
}

// A folder of results with one finished run of the first strategy.
class DamagedJson : public ::testing::Test {
 protected:
  DamagedJson() {
    const RunSpec& run = experiment_.runs.front();
    const RunAccount account = synthetic_account(run, 0.5, 1);
    run_ = run_folder(root_.path(), experiment_.name, run.id, account.placement);
    fs::create_directories(run_);
    record_ = compose_record(account).dump(1);
    write(run_ / kRecordFile, record_);
    experiment_.asked["matrix"]["seed"] = {0};
    keep_declaration(experiment_, root_.path());
  }

  fs::path folder() const { return experiment_folder(root_.path(), experiment_.name); }
  // The records of the folder. What is left aside must name the file.
  std::vector<Record> list(const std::string& file) const {
    std::vector<std::string> problems;
    std::vector<Record> records = list_records(root_.path(), experiment_.name, &problems);
    for (const std::string& problem : problems) EXPECT_NE(problem.find(file), std::string::npos) << problem;
    return records;
  }
  // All that a report takes from it; of no records it is the same whatever was left aside.
  void report(const std::string& file) const {
    const std::vector<Record> records = list(file);
    if (records.empty()) return;
    const ExperimentReport made =
        make_report(experiment_, records, kept_declarations(root_.path(), experiment_.name));
    report_text(made);
    report_json(made);
    count_runs(experiment_, records);
    for (const std::string& problem : made.problems)
      EXPECT_NE(problem.find(file), std::string::npos) << problem;
  }

  TemporaryFolder root_;
  Experiment experiment_ = synthetic_experiment(1);
  fs::path run_;
  std::string record_;
};

TEST_F(DamagedJson, OfSpecsIsNamed) {
  const fs::path file = root_.path() / "spec.json";
  std::vector<std::string> texts;
  for (const auto& entry : fs::directory_iterator("experiments"))
    if (entry.path().extension() == ".json" && entry.file_size() < 4000)
      texts.push_back(text_of(entry.path()));
  ASSERT_FALSE(texts.empty());
  std::ranges::sort(texts);
  test::expect_named_errors(texts, "spec.json", [&](const std::string& text) {
    write(file, text);
    load_experiment(file.string());
  });
}

TEST_F(DamagedJson, OfRecordsIsNamed) {
  test::expect_named_errors({record_}, kRecordFile, [&](const std::string& text) {
    write(run_ / kRecordFile, text);
    report(run_.parent_path().filename().string());
  });
}

TEST_F(DamagedJson, OfMetricsIsNamed) {
  std::string lines;
  for (int step = 10; step < 60; step += 10) {
    lines +=
        Json{{"step", step}, {"epoch", 0.1}, {"train_loss", 0.5}, {"lr", 0.1}, {"time_s", 1.5}}.dump() + "\n";
    lines += Json{{"step", step}, {"mean_iou", {{"saved", 0.5}}}, {"time_s", 1.5}}.dump() + "\n";
  }
  const fs::path file = run_ / kMetricsFile;
  test::expect_named_errors({lines}, kMetricsFile, [&](const std::string& text) {
    write(file, text);
    const std::string damage = read_metrics(run_, [](const Json&) {});
    if (damage.empty()) return report(kMetricsFile);
    EXPECT_NE(damage.find(kMetricsFile), std::string::npos) << damage;
  });
}

TEST_F(DamagedJson, OfLedgersIsNamed) {
  write(run_ / kMetricsFile, R"({"kind":"train","step":10,"loss":0.5})");
  keep_runs(folder());
  const fs::path file = folder() / kLedgerFile;
  test::expect_named_errors({text_of(file)}, kLedgerFile, [&](const std::string& text) {
    write_atomically(file, text);
    report(kLedgerFile);
  });
}

TEST_F(DamagedJson, OfClaimsIsNamed) {
  const fs::path claim = claim_file(run_, 1);
  test::expect_named_errors(
      {this_holder(30), this_holder()}, claim.filename().string(), [&](const std::string& text) {
        write(claim, text);
        const ClaimHolder holder(claim);
        holder.name();
        holder.json();
        holder.is_on_this_machine();
        holder.has_died();
        EXPECT_TRUE(std::isfinite(holder.renews_every_s()));
        std::vector<std::string> problems{};
        claimed_runs(root_.path(), experiment_.name, &problems);
        if (!holder.damage().empty()) problems.push_back(holder.damage());
        for (const std::string& problem : problems)
          EXPECT_NE(problem.find(claim.filename().string()), std::string::npos) << problem;
        const ActiveProcesses active(root_.path());
        std::string has_it;
        if (auto taken = Claim::take(
                run_, active, std::chrono::seconds(900), [](const fs::path&) { return false; }, has_it))
          taken->drop();
      });
}

TEST_F(DamagedJson, OfDeclarationsIsNamed) {
  const fs::path file = folder() / kDeclarationsFile;
  test::expect_named_errors({text_of(file)}, kDeclarationsFile, [&](const std::string& text) {
    write(file, text);
    kept_declarations(root_.path(), experiment_.name);
    report(kDeclarationsFile);
    keep_declaration(experiment_, root_.path());
  });
}

TEST_F(DamagedJson, OfConfirmationsAndInputsIsNamed) {
  Confirmations confirmations(folder());
  confirmations.add(list_records(root_.path(), experiment_.name).front());
  confirmations.keep();
  LastInputs inputs(folder());
  inputs.set(experiment_.runs.front(),
             {{"data", {{"files", 2}, {"bytes", 6}, {"fingerprint", "0123456789abcdef"}}}});
  inputs.keep();
  for (const std::string name : {kConfirmedFile, "inputs.json"}) {
    const fs::path file = folder() / name;
    test::expect_named_errors({text_of(file)}, name, [&](const std::string& text) {
      write(file, text);
      list(name);  // reads both files
    });
    fs::remove(file);
  }
}

TEST_F(DamagedJson, OfProbesIsNamed) {
  const fs::path file = root_.path() / "probe.json";
  Json probe = Json::parse(text_of("results/prediction/probe-2.json"));
  for (const char* part : {"collectives", "routes", "steps"}) {
    Json few = Json::array();
    for (const Json& row : probe[part])
      if (few.size() < 4) few.push_back(row);
    probe[part] = few;
  }
  test::expect_named_errors({probe.dump()}, "probe.json", [&](const std::string& text) {
    write(file, text);
    const Json read = read_json(file, probe_schema(), Keys::any);
    try {
      probed_fabric(read, "probe.json", factor_per_doubling())->seconds("sockets", "all_reduce", 1024, 64);
      steps_of_probe(read, "probe.json");
    } catch (const Json::exception&) {  // by_probe() of the commands says that a part is lacking
    }
  });
}

}  // namespace
}  // namespace bnlab
