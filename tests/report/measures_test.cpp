// A line of the table of measures is all that a number needs.
#include "harness/experiment/measures.hpp"

#include <gtest/gtest.h>

#include "harness/report/report.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::measures_test {
namespace {

// The table with one more line, while it lives.
class MadeUp {
 public:
  explicit MadeUp(const char* line) { table_.push_back(read_options<Measure>(Json::parse(line))); }
  ~MadeUp() { table_.pop_back(); }

 private:
  std::vector<Measure>& table_ = const_cast<std::vector<Measure>&>(measures());
};

TEST(Measures, ALineShowsANumberInEveryFormat) {
  Experiment experiment = synthetic_experiment(1);
  experiment.contrasts.at(0).metric = "made_up_g";
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    RunAccount account = synthetic_account(run, 0.5, static_cast<int>(run.towers()));
    account.result["throughput"]["made_up"] = run.strategy.at("name") == "sync" ? 4250 : 1750;
    records.emplace_back(compose_record(account), "record.json");
  }
  const TemporaryFolder no_figures;
  const auto formats = [&] {
    const ExperimentReport report = make_report(experiment, records);
    return std::vector{report_text(report), report_html(report, records, no_figures.path()),
                       report_csv(experiment, records),
                       report_json(report).at("cells").at(0).at("rows").dump()};
  };
  for (const std::string& text : formats()) EXPECT_EQ(text.find("made up"), std::string::npos) << text;
  const MadeUp line(R"({"key": "made_up_g", "column": "made_up", "path": "result.throughput.made_up",
                        "title": "made up, kg", "size": 1000, "decimals": 2, "more_is_better": false,
                        "in_specs": true, "shown_if": "always", "shown_as": "made\nup", "shown_decimals": 1, "note": "It is made up."})");
  const std::vector<std::string> made = formats();
  const auto expect = [&](size_t format, std::initializer_list<const char*> parts) {
    for (const char* part : parts) EXPECT_NE(made[format].find(part), std::string::npos) << made[format];
  };
  expect(0, {"  made\n", "  up\n", "  4.2\n", "  1.8\n", "made up, kg", " 2.50 ", "It is made up."});
  expect(1, {R"("title":"made\nup")", R"("4.2")", R"("1.8")", "made up, kg", R"("2.50")", "It is made up."});
  expect(2, {",code.dirty,made_up\n", ",4250\n", ",1750\n"});
  expect(3, {R"("made_up_g":{"n":1,"mean":1750.0)"});
}

TEST(Measures, CountOfTheRunsThatTheirLineSays) {
  const Experiment experiment = synthetic_experiment(1);
  const auto told = [&](const char* line, int ranks, int jobs = 1) {
    RunAccount account = synthetic_account(experiment.runs[0], 0.5, ranks);
    account.jobs = jobs;
    return number_of(Record(compose_record(account), "record.json"),
                     read_options<Measure>(Json::parse(line)));
  };
  const char* claimed = R"({"path": "result.throughput.images_per_s", "counts_if": "claimed", "times": 2})";
  EXPECT_EQ(told(claimed, 8), 91);
  EXPECT_EQ(told(claimed, 2), std::nullopt);
  EXPECT_EQ(told(claimed, 8, 2), std::nullopt);
  const char* emulated = R"({"path": "result.throughput.images_per_s", "counts_if": "emulated"})";
  EXPECT_EQ(told(emulated, 8), std::nullopt);
  EXPECT_EQ(told(emulated, 2), 45.5);
  EXPECT_EQ(told(emulated, 2, 2), std::nullopt);
  EXPECT_EQ(told(R"({"path": "result.memory.peak_rss_bytes", "largest_of_ranks": true})", 2, 2), 200);
  EXPECT_EQ(told(R"({"path": ["result.steps", "result.images"]})", 2, 2), 5100);
  EXPECT_EQ(told(R"({"path": ["result.nothing", "result.images"]})", 2), std::nullopt);
}

}  // namespace
}  // namespace bnlab::measures_test
