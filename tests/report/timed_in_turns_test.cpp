// What a report says of runs that were timed in turns with another one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/report/report.hpp"
#include "tests/store/synthetic.hpp"

namespace bnlab {
namespace {

// Six seeds on real ranks, where sync has 60 % of the images/s of the run beside it, and each seed's copies
// of that run differ by 0.2 % per seed. With `disturbed` those of seed 0 were.
std::vector<Record> records_of(const Experiment& experiment, bool disturbed = false) {
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    RunAccount account = synthetic_account(run, 0.5, static_cast<int>(run.towers()));
    const double noise = 0.002 * static_cast<double>(run.seed);
    const bool sync = run.strategy.at("name") == "sync";
    account.result["timing"] = {{"log_images_per_s", (sync ? std::log(0.6) : 0.0) + noise},
                                {"same_log_images_per_s", -noise},
                                {"disturbed", disturbed && run.seed == 0}};
    records.emplace_back(compose_record(account), "record.json");
  }
  return records;
}

Experiment timed_experiment() {
  Experiment experiment = synthetic_experiment(6);
  experiment.contrasts.at(0).metric = kLogImagesPerS;
  experiment.contrasts.at(0).equivalence_margin = 0.03;
  return experiment;
}

TEST(TimedInTurns, ComparisonsAreOfLogarithmsAndCellsInPerCentOfTheRunBeside) {
  const Experiment experiment = timed_experiment();
  const ExperimentReport report = make_report(experiment, records_of(experiment));
  const ContrastResult& contrast = report.contrasts.at(0);
  EXPECT_EQ(contrast.verdict, Verdict::worse);
  EXPECT_NEAR(contrast.interval.mean, std::log(0.6), 1e-9);
  for (const ReportCell& cell : report.cells) {
    const double expected = (cell.strategy == "sync" ? 0.6 : 1) * std::exp(0.005);  // the mean noise
    EXPECT_NEAR(cell.rows.at(0).relative_rate.value(), expected, 1e-9);
  }
  const std::string text = report_text(report);
  EXPECT_NE(text.find("60.3"), std::string::npos) << text;
  EXPECT_NE(text.find("100.5"), std::string::npos) << text;
  const Json row = report_json(report).at("cells").at(0).at("rows").at(0);
  EXPECT_EQ(row.at("log_images_per_s").at("n"), 6);
  EXPECT_NEAR(row.at("same_log_images_per_s").at("mean"), -0.005, 1e-9);
}

TEST(TimedInTurns, WhatAStepTakesMoreIsSeenInTheSameTurns) {
  Experiment experiment = timed_experiment();
  for (RunSpec& run : experiment.runs) run.timing.emplace().against = {{"strategy", "per_tower"}};
  const ExperimentReport report = make_report(experiment, records_of(experiment), {}, "per_tower");
  EXPECT_EQ(report.cells.at(0).rows.at(0).relative_rate, 1);
  const ReportRow& row = report.cells.at(1).rows.at(0);
  ASSERT_EQ(row.of("extra_step_ms").size(), 6U);
  for (size_t seed = 0; seed < 6; ++seed) {
    const double ratio = 0.6 * std::exp(0.002 * static_cast<double>(seed));
    EXPECT_NEAR(row.of("extra_step_ms")[seed].second, row.of("step_ms")[seed].second * (1 - ratio), 1e-9);
  }
}

TEST(TimedInTurns, AnotherBaselineIsMeasuredByTheRunThatBothStoodBeside) {
  Experiment experiment = timed_experiment();
  for (RunSpec& run : experiment.runs) run.timing.emplace().against = {{"strategy", "per_tower"}};
  for (const ReportCell& cell : make_report(experiment, records_of(experiment), {}, "sync").cells)
    EXPECT_NEAR(cell.rows.at(0).relative_rate.value(), cell.strategy == "sync" ? 1 : 1 / 0.6, 1e-9);
  for (RunSpec& run : experiment.runs) run.timing->against = {{"gradient_route", "host"}};
  for (const ReportCell& cell : make_report(experiment, records_of(experiment), {}, "sync").cells)
    EXPECT_EQ(cell.rows.at(0).relative_rate, 1) << "other runs stood beside each: plain images/s, all 45.5";
}

TEST(TimedInTurns, JsonNamesTheRunThatStoodBesideEach) {
  Experiment experiment = timed_experiment();
  for (RunSpec& run : experiment.runs) run.timing.emplace().against = {{"strategy", "per_tower"}};
  const Json report = report_json(make_report(experiment, records_of(experiment), {}, "sync"));
  EXPECT_EQ(report.at("cells").at(1).at("rows").at(0).at("beside"), "per_tower");
}

TEST(TimedInTurns, TheNoiseIsHowFarTheCopiesDiffer) {
  const Experiment experiment = timed_experiment();
  const std::vector<std::string> notes = footnotes(make_report(experiment, records_of(experiment)));
  const auto told = std::ranges::count_if(notes, [](const std::string& note) {
    return note.find(
               "differ by 0.5 % on average, by 1.0 % at most. In the mean of a row's runs they differ by 0.5 "
               "%") != std::string::npos;
  });
  EXPECT_EQ(told, 1);
  Experiment plain = synthetic_experiment(2);
  std::vector<Record> records;
  for (const RunSpec& run : plain.runs)
    records.push_back(synthetic_record(run, 0.5, static_cast<int>(run.towers())));
  EXPECT_EQ(report_text(make_report(plain, records)).find("the run beside"), std::string::npos);
}

TEST(TimedInTurns, DisturbedTimesAreClaimedByNobody) {
  const Experiment experiment = timed_experiment();
  const ExperimentReport report = make_report(experiment, records_of(experiment, /*disturbed=*/true));
  EXPECT_EQ(report.contrasts.at(0).interval.n, 5U);
  EXPECT_EQ(report.cells.at(0).rows.at(0).of(kImagesPerS).size(), 5U);
  EXPECT_NE(report_text(report).find("others used the machine during some of these timings"),
            std::string::npos);
}

}  // namespace
}  // namespace bnlab
