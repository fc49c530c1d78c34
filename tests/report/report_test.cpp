#include "harness/report/report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "harness/support/error.hpp"
#include "tests/store/synthetic.hpp"

namespace bnlab::report_test {
namespace {

// per_tower scores 0.5 + seed / 100; sync 0.1 more at 8 towers (give or take 0.01), 0.02 less at 2.
double score(const RunSpec& run) {
  const double base = 0.5 + static_cast<double>(run.seed) / 100;
  if (run.strategy.at("name") == "per_tower") return base;
  return run.towers() == 8 ? base + (run.seed % 2 == 0 ? 0.11 : 0.09) : base - 0.02;
}

std::vector<Record> all_records(const Experiment& experiment, int ranks) {
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) records.push_back(synthetic_record(run, score(run), ranks));
  return records;
}

const ReportCell& cell(const ExperimentReport& report, const std::string& group,
                       const std::string& strategy) {
  const auto found = std::find_if(report.cells.begin(), report.cells.end(), [&](const ReportCell& c) {
    return c.cell == std::vector<std::string>{group, strategy};
  });
  if (found == report.cells.end()) throw std::out_of_range(group + " " + strategy);
  return *found;
}

// The cell's only row.
const ReportRow& row(const ExperimentReport& report, const std::string& group, const std::string& strategy) {
  EXPECT_EQ(cell(report, group, strategy).rows.size(), 1u);
  return cell(report, group, strategy).rows.at(0);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Report, HasOneRowPerCellOverTheSeeds) {
  const Experiment experiment = synthetic_experiment(6);
  const ExperimentReport report = make_report(experiment, all_records(experiment, 1));
  EXPECT_EQ(report.columns, (std::vector<std::string>{"towers x batch", "strategy"}));
  EXPECT_EQ(report.headline, "mean_iou");
  ASSERT_EQ(report.cells.size(), 4u);
  EXPECT_EQ(report.cells[0].cell, (std::vector<std::string>{"8x2", "per_tower"}));
  const ReportRow& sync = row(report, "8x2", "sync");
  EXPECT_EQ(sync.scores.count(Status::ok), 6);
  const SeedValues& saved = sync.scores.values.at("saved");
  ASSERT_EQ(saved.size(), 6u);
  EXPECT_EQ(saved[1].first, 1u);
  EXPECT_DOUBLE_EQ(saved[1].second, 0.6);                                     // 0.5 + 0.01 + 0.09
  EXPECT_EQ(over_seeds(sync.of("peak_memory_bytes")).mean, 7 * 1024 * 1024);  // of the rank that needs most
  EXPECT_EQ(over_seeds(sync.of("collectives_per_step")).mean, 20);
}

TEST(Report, JudgesTheDeclaredContrastsPairedBySeed) {
  const Experiment experiment = synthetic_experiment(6);
  const ExperimentReport report = make_report(experiment, all_records(experiment, 1));
  ASSERT_EQ(report.contrasts.size(), 1u);  // at towers = 8 only
  const ContrastResult& result = report.contrasts[0];
  EXPECT_EQ(result.group, "8x2");
  EXPECT_EQ(result.interval.n, 6u);
  EXPECT_NEAR(result.interval.mean, 0.1, 1e-12);
  EXPECT_DOUBLE_EQ(*result.sign_flip_p, 0.03125);  // six of one sign: 2^-5
  EXPECT_EQ(result.verdict, Verdict::better);
  EXPECT_EQ(result.warning, "");
  EXPECT_EQ(report.learned, (std::vector<std::string>{"Declared comparisons: 1 better."}));
  EXPECT_EQ(
      report.leaders,
      "Highest mean mean_iou with saved statistics, exploratory: at 8x2 sync 0.625 (next per_tower 0.525). "
      "At 2x8 per_tower 0.525 (next sync 0.505).");
  EXPECT_EQ(report_json(report).at("learned"), Json({report.leaders, report.learned.front()}));
}

TEST(Report, WhatIsTheSameAsPrintedIsLevel) {
  const Experiment experiment = synthetic_experiment(2);
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) records.push_back(synthetic_record(run, 0.5, 1));
  const ExperimentReport report = make_report(experiment, records);
  EXPECT_TRUE(has(report.leaders, "8x2 per_tower 0.500 (level with sync)")) << report.leaders;
}

TEST(Report, ComparesWithinEachGroupThatAContrastMatches) {
  Experiment experiment = synthetic_experiment(6);
  experiment.contrasts[0].at = Json::object();
  const ExperimentReport report = make_report(experiment, all_records(experiment, 1));
  ASSERT_EQ(report.contrasts.size(), 2u);
  EXPECT_EQ(report.contrasts[0].group, "8x2");
  EXPECT_EQ(report.contrasts[1].group, "2x8");
  EXPECT_NEAR(report.contrasts[1].interval.mean, -0.02, 1e-12);
  EXPECT_EQ(report.contrasts[1].verdict, Verdict::worse);
  // Holm: of two p values the smaller is doubled, the larger stays. The second has no spread to speak of.
  EXPECT_DOUBLE_EQ(report.contrasts[0].holm_p, report.contrasts[0].p);
  EXPECT_DOUBLE_EQ(report.contrasts[1].holm_p, 2 * report.contrasts[1].p);
}

TEST(Report, AContrastIsFoundByAPartOfAComponentAndByAPlacement) {
  Experiment experiment = synthetic_experiment(6);
  for (RunSpec& run : experiment.runs) run.ranks = 1;
  experiment.contrasts[0].at = {{"model", {{"base", 8}}}, {"towers", 8}, {"placement.ranks", 1}};
  const ExperimentReport report = make_report(experiment, all_records(experiment, 1));
  ASSERT_EQ(report.contrasts.size(), 1u);
  EXPECT_EQ(report.contrasts[0].interval.n, 6u) << report.contrasts[0].warning;
}

TEST(Report, AContrastAtASeedComparesTheRunsOfThatSeedOnly) {
  Experiment experiment = synthetic_experiment(6);
  experiment.contrasts[0].at = {{"towers", 8}, {"seed", 1}};
  const ExperimentReport report = make_report(experiment, all_records(experiment, 1));
  ASSERT_EQ(report.contrasts.size(), 1u);
  ASSERT_EQ(report.contrasts[0].differences.size(), 1u) << report.contrasts[0].warning;
  EXPECT_EQ(report.contrasts[0].differences[0].first, 1u);
}

TEST(Report, PairsSeedsOnThePlacementThatHasMost) {
  const Experiment experiment = synthetic_experiment(2);
  std::vector<Record> records = all_records(experiment, 1);
  for (const RunSpec& run : experiment.runs)
    if (run.seed == 0) records.push_back(synthetic_record(run, score(run) / 2, 2));
  const ExperimentReport report = make_report(experiment, records);
  EXPECT_EQ(report.contrasts[0].interval.n, 2u);
  EXPECT_NEAR(report.contrasts[0].interval.mean, 0.1, 1e-12);
}

TEST(Report, WarnsWhenSeedsAreTooFew) {
  const Experiment experiment = synthetic_experiment(3);
  const std::string text = report_text(make_report(experiment, all_records(experiment, 1)));
  EXPECT_TRUE(has(text, "only 3 paired seeds, so a direction at most")) << text;
  EXPECT_TRUE(has(text, "direction: above")) << text;
  EXPECT_TRUE(has(text, "Declared comparisons: 1 direction: above (fewer than 6 seeds")) << text;
  EXPECT_TRUE(has(text, "p = 0.25")) << text;
  Experiment three = experiment;
  for (const int64_t towers : {2, 8}) {
    three.contrasts.push_back(experiment.contrasts[0]);
    three.contrasts.back().at = {{"towers", towers}};
    if (towers == 8) three.contrasts.back().metric = "pixel_accuracy";
  }
  const std::string once = report_text(make_report(three, all_records(three, 1)));
  EXPECT_TRUE(has(once, "Warning: 3 comparisons: only 3 paired seeds")) << once;
}

TEST(Report, CountsFailedAndMissingRuns) {
  const Experiment experiment = synthetic_experiment(2);
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    const std::string strategy = run.strategy.at("name");
    if (run.towers() == 8 && strategy == "sync") continue;  // missing
    if (run.seed == 1 && strategy == "per_tower")
      records.push_back(synthetic_failure(run, Status::crashed, 1));
    else if (run.seed == 1)
      records.push_back(synthetic_failure(run, Status::interrupted, 1));  // not finished
    else
      records.push_back(synthetic_record(run, score(run), 1));
  }
  const ExperimentReport report = make_report(experiment, records);
  EXPECT_EQ(report.runs.asked, 8);
  EXPECT_EQ(report.runs.finished, 5);
  EXPECT_EQ(report.runs.failed, 2);
  EXPECT_EQ(row(report, "8x2", "sync").scores.count(Status::ok), 0);
  EXPECT_EQ(row(report, "2x8", "sync").scores.count(Status::ok), 1);
  EXPECT_EQ(row(report, "2x8", "sync").scores.count(std::nullopt), 1);  // interrupted is not finished
  EXPECT_EQ(row(report, "8x2", "per_tower").scores.failures(), (std::map<std::string, int>{{"crashed", 1}}));
  EXPECT_EQ(report.contrasts[0].warning, "no pair of finished runs");
  EXPECT_EQ(report.contrasts[0].verdict, Verdict::undecided);
  const std::string text = report_text(report);
  EXPECT_TRUE(has(text, "3 of 8 runs ended ok, 2 failed, 3 are not there: the matrix is incomplete")) << text;
  EXPECT_TRUE(has(text, "Failed runs:\n2 crashed: it went wrong (such as per_tower-8x2-seed1")) << text;
  EXPECT_TRUE(has(report_markdown(report), "- Failed: 2 crashed: it went wrong")) << report_markdown(report);
  EXPECT_EQ(report_json(report).at("failures").at(0).at("runs"), 2);
  EXPECT_TRUE(has(text, "1 crashed")) << text;
  EXPECT_TRUE(has(text, "0/2")) << text;
}

TEST(Report, ClaimsThroughputOnlyOfRealRanksAloneOnTheMachine) {
  const Experiment experiment = synthetic_experiment(1);
  const RunSpec& run = experiment.runs[0];  // 8 towers
  const auto first_row = [&](const RunAccount& account) {
    return make_report(experiment, {Record(compose_record(account), "record.json")}).cells[0].rows[0];
  };
  EXPECT_EQ(first_row(synthetic_account(run, 0.5, 8)).claimed_images_per_s(), 45.5);
  EXPECT_EQ(first_row(synthetic_account(run, 0.5, 2)).claimed_images_per_s(), std::nullopt);
  EXPECT_TRUE(first_row(synthetic_account(run, 0.5, 2)).emulated);
  RunAccount beside = synthetic_account(run, 0.5, 8);
  beside.jobs = 2;
  EXPECT_EQ(first_row(beside).claimed_images_per_s(), std::nullopt);
  const std::string text = report_text(make_report(experiment, {synthetic_record(run, 0.5, 2)}));
  EXPECT_TRUE(has(text, "No images/s: emulated")) << text;
  const std::string both = report_text(
      make_report(experiment, {synthetic_record(run, 0.5, 2), synthetic_record(experiment.runs[1], 0.5, 8)}));
  EXPECT_TRUE(has(both, "- (e)")) << both;
  EXPECT_TRUE(has(both, "(e) emulated")) << both;
  RunAccount untimed = synthetic_account(run, 0.5, 8);
  untimed.result["throughput"] = nullptr;
  const std::string none =
      report_text(make_report(experiment, {Record(compose_record(untimed), "record.json")}));
  EXPECT_TRUE(has(none, "No images/s: no run recorded any")) << none;
  EXPECT_FALSE(has(both + text, "no run recorded any")) << text << both;
  RunAccount failed_turns = synthetic_account(run, 0.5, 8);
  failed_turns.spec.resolved["timing"] = {{"against", {{"strategy", "per_tower"}}}};
  failed_turns.result["timing"] = nullptr;
  const std::string turns =
      report_text(make_report(experiment, {Record(compose_record(failed_turns), "record.json")}));
  EXPECT_TRUE(has(turns, "No images/s: the turns in which some runs were to be timed failed")) << turns;
}

TEST(Report, TellsTheShareOfTheTimeThatExchangesTookWhereThroughputIsClaimed) {
  const Experiment experiment = synthetic_experiment(1);
  const auto reported = [&](int ranks) {
    RunAccount account = synthetic_account(experiment.runs[0], 0.5, ranks);
    account.result["throughput"]["exchange_share"] = 0.25;
    return make_report(experiment, {Record(compose_record(account), "record.json")});
  };
  EXPECT_EQ(over_seeds(reported(8).cells[0].rows[0].of("exchange_share")).mean, 0.25);
  EXPECT_TRUE(has(report_text(reported(8)), "% of time: the share")) << report_text(reported(8));
  EXPECT_EQ(report_json(reported(8)).at("cells").at(0).at("rows").at(0).at("exchange_share").at("mean"),
            0.25);
  EXPECT_FALSE(has(report_text(reported(2)), "% of time")) << "emulated";
  const Experiment two = synthetic_experiment(2);
  std::vector<Record> records;
  for (const RunSpec& run : {two.runs[0], two.runs[4]}) {  // seeds 0 and 1 of one cell
    RunAccount account = synthetic_account(run, 0.5, 8);
    if (run.seed == 0) account.result["throughput"]["exchange_share"] = 0.25;
    records.emplace_back(compose_record(account), "record.json");
  }
  EXPECT_TRUE(make_report(two, records).cells[0].rows[0].of("exchange_share").empty())
      << "one run does not tell it";
}

TEST(Report, SaysWhereRowsWereTimedOnDifferentMachines) {
  const Experiment experiment = synthetic_experiment(1);
  const auto timed_on = [&](const std::string& first, const std::string& second, int ranks = 8) {
    std::vector<Record> records;
    for (const auto& [run, generation] : {std::pair{0, first}, std::pair{1, second}}) {
      RunAccount account = synthetic_account(experiment.runs[run], 0.5, ranks);
      account.environment["cpu"] = "EPYC";
      account.environment["cpu_generation"] = generation;
      records.emplace_back(compose_record(account), "record.json");
    }
    return report_markdown(make_report(experiment, records));
  };
  const std::string said =
      "Timed on several machines or numbers of threads: "
      "8x1-cpu on EPYC (family 25), GPUs unknown, threads 1; "
      "8x1-cpu on EPYC (family 26), GPUs unknown, threads 1.";
  EXPECT_TRUE(has(timed_on("family 25", "family 26"), said)) << timed_on("family 25", "family 26");
  EXPECT_FALSE(has(timed_on("family 25", "family 25"), "several machines"));
  EXPECT_FALSE(has(timed_on("family 25", "family 26", 2), "several machines")) << "emulated: no times";
}

TEST(Report, TellsTheShareOfTheRooflineWhereThroughputIsClaimed) {
  const Experiment experiment = synthetic_experiment(1);
  const auto reported = [&](int ranks, std::optional<double> shortest) {
    ExperimentReport report = make_report(experiment, {synthetic_record(experiment.runs[0], 0.5, ranks)});
    const double step_ms = report.cells[0].rows[0].of("step_ms").empty()
                               ? 1
                               : over_seeds(report.cells[0].rows[0].of("step_ms")).mean;
    const auto of_step = [&](const RunSpec& run, const ReportRow& row) {
      EXPECT_EQ(run.id, experiment.runs[0].id);
      EXPECT_EQ(row.ranks, ranks);
      EXPECT_EQ(row.machines, std::set<std::string>{"unknown, GPUs unknown, threads 1"});
      return shortest ? std::optional(*shortest * step_ms * 1e-3) : std::nullopt;
    };
    add_roofline(report, experiment, of_step, "% of roofline: so and so.");
    return report;
  };
  const ExperimentReport report = reported(8, 0.25);
  EXPECT_NEAR(over_seeds(report.cells[0].rows[0].of("roofline_share")).mean, 0.25, 1e-12);
  EXPECT_TRUE(report.cells[1].rows[0].of("roofline_share").empty()) << "nothing has run there";
  EXPECT_TRUE(has(report_text(report), "roofline")) << report_text(report);
  EXPECT_TRUE(has(report_text(report), "% of roofline: so and so.")) << report_text(report);
  const Json row = report_json(report).at("cells").at(0).at("rows").at(0);
  EXPECT_NEAR(row.at("roofline_share").at("mean").get<double>(), 0.25, 1e-12);
  EXPECT_TRUE(reported(8, std::nullopt).cells[0].rows[0].of("roofline_share").empty())
      << "of another machine";
  EXPECT_TRUE(reported(2, 0.25).cells[0].rows[0].of("roofline_share").empty()) << "emulated";
  EXPECT_FALSE(has(report_text(make_report(experiment, {})), "roofline"));
}

TEST(Report, TakesNoCostsFromFailedRuns) {
  const Experiment experiment = synthetic_experiment(2);
  RunAccount diverged = synthetic_account(experiment.runs[0], 0.5, 8);
  diverged.outcome.status = Status::diverged;
  const ReportRow row =
      make_report(experiment, {Record(compose_record(diverged), "record.json")}).cells[0].rows[0];
  EXPECT_TRUE(row.of("images_per_s").empty());
  EXPECT_TRUE(row.of("peak_memory_bytes").empty());
  EXPECT_TRUE(row.of("collectives_per_step").empty());
}

TEST(Report, CountsShufflingAmongTheExchangesOfAStep) {
  const Experiment experiment = synthetic_experiment(1);
  RunAccount account = synthetic_account(experiment.runs[0], 0.5, 1);
  account.result["communication"]["shuffle"] = {{"collectives_per_step", 4}, {"bytes_per_step", 1000}};
  const ExperimentReport report = make_report(experiment, {Record(compose_record(account), "record.json")});
  EXPECT_EQ(over_seeds(report.cells[0].rows[0].of("collectives_per_step")).mean, 24);
  EXPECT_EQ(over_seeds(report.cells[0].rows[0].of("bytes_per_step")).mean, 2234.5);
  EXPECT_TRUE(has(report_text(report), "With one rank nothing is sent"));
}

TEST(Report, HasAColumnForEachPopulationOfTheSpec) {
  Experiment experiment = synthetic_experiment(1);
  experiment.runs[0].populations = {"saved", "tower:3", "precise"};
  RunAccount account = synthetic_account(experiment.runs[0], 0.5, 1);
  account.result["final"]["tower:3"] = {{"mean_iou", 0.25}};
  const ExperimentReport report = make_report(experiment, {Record(compose_record(account), "record.json")});
  EXPECT_EQ(report.populations, (std::vector<std::string>{"saved", "tower:3", "precise", "batch"}));
  EXPECT_DOUBLE_EQ(report.cells[0].scores.values.at("tower:3").at(0).second, 0.25);
}

TEST(Report, KeepsPlacementsApart) {
  const Experiment experiment = synthetic_experiment(2);
  std::vector<Record> records = all_records(experiment, 1);
  for (const Record& record : all_records(experiment, 2)) records.push_back(record);
  const ExperimentReport report = make_report(experiment, records);
  ASSERT_EQ(report.cells.size(), 4u);
  for (const ReportCell& each : report.cells) {
    EXPECT_EQ(each.rows.size(), 2u);
    EXPECT_EQ(each.scores.values.at("saved").size(), 2u);  // a seed counts once
  }
  EXPECT_EQ(report.runs.finished, 8);
  EXPECT_EQ(report.contrasts[0].interval.n, 2u);  // two seeds in each of two placements, not four seeds
  EXPECT_TRUE(has(report_text(report), "2x4-cpu"));
}

TEST(Report, TakesSavedForAStrategyThatKnowsNoOtherPopulation) {
  const Experiment experiment = synthetic_experiment(1);
  RunAccount account = synthetic_account(experiment.runs[0], 0.5, 1);
  account.result["final"].erase("batch");
  const ExperimentReport report = make_report(experiment, {Record(compose_record(account), "record.json")});
  EXPECT_DOUBLE_EQ(report.cells[0].scores.values.at("batch").at(0).second, 0.5);
}

TEST(Report, FitsAHundredColumns) {
  const Experiment experiment = synthetic_experiment(3);
  std::istringstream text(report_text(make_report(experiment, all_records(experiment, 1))));
  for (std::string line; std::getline(text, line);) {
    const auto continuation =
        std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) == 0x80; });
    EXPECT_LE(line.size() - static_cast<size_t>(continuation), 100u) << line;
  }
}

TEST(Report, ShowsAxesOfObjectsByWhatVariesInThem) {
  Experiment experiment = synthetic_experiment(1);
  experiment.axes = {"seed", "optimizer", "strategy"};
  experiment.runs = {synthetic_run("sync", 8, 2, 0), synthetic_run("sync", 8, 2, 0)};
  experiment.runs[1].id += "other";
  experiment.runs[1].resolved["optimizer"]["lr"] = 0.01;
  const ExperimentReport report = make_report(experiment, {});
  EXPECT_EQ(report.columns, (std::vector<std::string>{"optimizer.lr", "strategy"}));
  ASSERT_EQ(report.cells.size(), 2u);
  EXPECT_EQ(report.cells[1].cell, (std::vector<std::string>{"0.01", "sync"}));
}

TEST(Report, ShowsAnAxisOfComponentsThatDifferInMoreThanAnOptionByTheirLabels) {
  Experiment experiment = synthetic_experiment(1);
  experiment.axes = {"seed", "model", "optimizer", "strategy"};
  experiment.runs = {synthetic_run("sync", 8, 2, 0), synthetic_run("sync", 8, 2, 0)};
  experiment.runs[1].id += "other";
  experiment.runs[0].resolved["model"] = {{"name", "fake_net"}, {"base", 32}};
  experiment.runs[1].resolved["model"] = {{"name", "fake_backbone_net"},
                                          {"backbone", {{"name", "fake_backbone"}, {"base", 4}}}};
  experiment.runs[1].resolved["optimizer"] = {{"name", "sgd"}, {"lr", 0.01}, {"momentum", 0.5}};
  const ExperimentReport report = make_report(experiment, {});
  EXPECT_EQ(report.columns, (std::vector<std::string>{"model", "optimizer", "strategy"}));
  ASSERT_EQ(report.cells.size(), 2u);
  EXPECT_EQ(report.cells[0].cell, (std::vector<std::string>{"fake_net(base=32)", "sgd", "sync"}));
  EXPECT_EQ(report.cells[1].cell,
            (std::vector<std::string>{"fake_backbone_net(backbone=fake_backbone(base=4))",
                                      "sgd(lr=0.01,momentum=0.5)", "sync"}));
  EXPECT_EQ(report.cells[0].group, "model=fake_net(base=32), optimizer=sgd");
  EXPECT_TRUE(matches({{"model", "fake_net(base=32)"}}, experiment.runs[0]));
  EXPECT_FALSE(matches({{"model", "fake_net"}}, experiment.runs[1]));
}

TEST(ReportJson, GivesEverySeedWithItsOutcome) {
  const Experiment experiment = synthetic_experiment(2);
  std::vector<Record> records = all_records(experiment, 1);
  records.pop_back();  // sync at 2x8, seed 1
  const Json report = report_json(make_report(experiment, records));
  const Json& sync = report.at("cells").at(1);
  EXPECT_EQ(sync.at("cell").at("strategy"), "sync");
  EXPECT_EQ(sync.at("towers"), 8);
  EXPECT_EQ(sync.at("values").at("saved").at("seeds").size(), 2u);
  EXPECT_EQ(sync.at("values").at("saved").at("seeds").at(1).at("seed"), 1);
  EXPECT_EQ(sync.at("evaluated"), Json({"batch", "saved"}));
  EXPECT_EQ(sync.at("populations"), experiment.runs.at(1).resolved.at("populations"));
  EXPECT_EQ(sync.at("rows").at(0).at("placement"), "1x8-cpu");
  EXPECT_EQ(report.at("contrasts").at(0).at("difference").at("seeds").size(), 2u);
  EXPECT_EQ(report.at("cells").at(3).at("outcomes").at(1), Json({{"seed", 1}, {"outcome", "missing"}}));
  EXPECT_EQ(report.at("cells").at(3).at("missing"), 1);
}

TEST(ReportJson, ClaimsNoThroughputOfEmulatedRuns) {
  const Experiment experiment = synthetic_experiment(1);
  const Json cells = report_json(make_report(experiment, all_records(experiment, 2))).at("cells");
  EXPECT_TRUE(cells.at(0).at("rows").at(0).at("images_per_s").is_null());
  EXPECT_EQ(cells.at(0).at("rows").at(0).at("emulated_images_per_s").at("mean"), 45.5);
  EXPECT_EQ(cells.at(2).at("rows").at(0).at("images_per_s").at("mean"), 45.5);  // 2 towers on 2 ranks
  EXPECT_TRUE(cells.at(2).at("rows").at(0).at("emulated_images_per_s").is_null());
}

TEST(ReportJson, NamesTheConditionsThatSetGroupsApart) {
  Experiment experiment = synthetic_experiment(1);
  experiment.axes = {"seed", "towers,batch_per_tower", "optimizer.lr", "strategy"};
  experiment.runs = {synthetic_run("sync", 8, 2, 0), synthetic_run("sync", 8, 2, 0)};
  experiment.runs[1].resolved["optimizer"]["lr"] = 0.01;
  const Json cells = report_json(make_report(experiment, {})).at("cells");
  EXPECT_EQ(cells.at(1).at("conditions"), Json({{"optimizer.lr", "0.01"}}));
}

}  // namespace
}  // namespace bnlab::report_test
