#include "harness/report/contrast_results.hpp"

#include <gtest/gtest.h>

#include "harness/report/report.hpp"
#include "tests/store/synthetic.hpp"

namespace bnlab {
namespace {

// Every run through shared memory and over sockets, with images_per_s(run, sockets).
template <typename ImagesPerS>
std::vector<Record> by_both_exchanges(const Experiment& experiment, ImagesPerS images_per_s) {
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    for (const bool sockets : {false, true}) {
      RunAccount account = synthetic_account(run, 0.5, static_cast<int>(run.towers()));
      if (sockets) account.placement.exchange = Exchange::sockets;
      account.result["throughput"]["images_per_s"] = images_per_s(run, sockets);
      records.emplace_back(compose_record(account), "record.json");
    }
  }
  return records;
}

TEST(Contrasts, CompareAStrategyWithItselfUnderOtherStatistics) {
  Experiment experiment = synthetic_experiment(6);
  Contrast& contrast = experiment.contrasts[0];
  contrast.strategy = contrast.above = "per_tower";
  contrast.population = "batch";
  contrast.above_population = "saved";
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    RunAccount account = synthetic_account(run, 0.5, 1);
    account.result["final"]["batch"]["mean_iou"] = run.seed % 2 == 0 ? 0.71 : 0.69;
    records.emplace_back(compose_record(account), "record.json");
  }
  const ExperimentReport report = make_report(experiment, records);
  ASSERT_EQ(report.contrasts.size(), 1u);
  EXPECT_EQ(report.contrasts[0].interval.n, 6u);
  EXPECT_NEAR(report.contrasts[0].interval.mean, 0.2, 1e-12);
  EXPECT_NE(report_text(report).find("mean_iou batch - saved"), std::string::npos) << report_text(report);
}

TEST(Contrasts, SayWhereOneSideFailedAndThenClaimNoEquality) {
  Experiment experiment = synthetic_experiment(8);
  experiment.contrasts[0].equivalence_margin = 0.02;
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    const bool sync = run.strategy.at("name") == "sync", failed = sync && run.seed < 2;
    const double score = 0.5 + (sync ? (run.seed % 2 == 0 ? 0.001 : -0.001) : 0);
    records.push_back(failed ? synthetic_failure(run, Status::diverged, 1) : synthetic_record(run, score, 1));
  }
  const ExperimentReport report = make_report(experiment, records);
  const ContrastResult& result = report.contrasts.at(0);
  EXPECT_EQ(result.failed, (std::set<uint64_t>{0, 1}));
  EXPECT_EQ(result.interval.n, 6u);
  EXPECT_LT(*result.equal_p, 0.05);
  EXPECT_EQ(result.verdict, Verdict::undecided);
  for (const std::string& text : {report_text(report), report_html(report, records, "none")}) {
    EXPECT_NE(text.find("6 (2 failed)"), std::string::npos) << text;
    EXPECT_NE(text.find("(failed) at so many seeds more"), std::string::npos) << text;
  }
  EXPECT_EQ(report_json(report).at("contrasts").at(0).at("failed_seeds"), Json({0, 1}));
  // Where another placement has the seed, nothing is lost.
  for (const RunSpec& run : experiment.runs) records.push_back(synthetic_record(run, 0.5, 2));
  EXPECT_EQ(make_report(experiment, records).contrasts.at(0).failed, std::set<uint64_t>{});
}

// Of one seed each placement has a pair; those on one rank are of older code.
TEST(Contrasts, OfAccuracyTakeThePlacementThatIsUpToDate) {
  const Experiment experiment = synthetic_experiment(6);
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    const bool sync = run.strategy.at("name") == "sync";
    Json stale = synthetic_record(run, sync ? 0.9 : 0.3, 1).json();
    stale["code"]["numerics"]["base"] = "another";
    records.emplace_back(stale, "record.json");
    records.push_back(synthetic_record(run, sync ? 0.6 : 0.5, 2));
  }
  const ContrastResult result = make_report(experiment, records).contrasts.at(0);
  EXPECT_NEAR(result.interval.mean, 0.1, 1e-12);
  EXPECT_EQ(result.stale, std::set<uint64_t>{});
}

// Differences of 0.02 to and fro over six seeds lie within a margin of 0.02 with p = 0.038.
TEST(Contrasts, AdjustEqualityAmongThoseThatHaveAMargin) {
  Experiment experiment = synthetic_experiment(6);
  experiment.contrasts[0].equivalence_margin = 0.02;
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    const bool sync = run.strategy.at("name") == "sync";
    records.push_back(synthetic_record(run, sync ? (run.seed % 2 == 0 ? 0.52 : 0.48) : 0.5, 1));
  }
  const auto verdict_of_first = [&] { return make_report(experiment, records).contrasts[0].verdict; };
  EXPECT_EQ(verdict_of_first(), Verdict::equal);
  experiment.contrasts.push_back(experiment.contrasts[0]);
  experiment.contrasts[1].at = {{"towers", 2}};
  EXPECT_EQ(verdict_of_first(), Verdict::undecided);
  experiment.contrasts[1].equivalence_margin.reset();
  EXPECT_EQ(verdict_of_first(), Verdict::equal);
}

// Costs depend on the placement, accuracies do not.
TEST(Contrasts, CompareCostsOnEachPlacementApart) {
  Experiment experiment = synthetic_experiment(6);
  const std::vector<Record> records = by_both_exchanges(experiment, [](const RunSpec& run, bool sockets) {
    const bool slower = sockets && run.strategy.at("name") == "sync";
    return 40 - (slower ? 10 : 0) + 0.01 * static_cast<double>(run.seed % 2);
  });
  Contrast cost = experiment.contrasts[0];
  std::swap(cost.strategy, cost.above);
  cost.metric = "images_per_s";
  experiment.contrasts.push_back(cost);
  const std::vector<ContrastResult> results = make_report(experiment, records).contrasts;
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].group, "8x2");
  EXPECT_EQ(results[1].group, "8x2, 8x1-cpu");
  EXPECT_NEAR(results[1].interval.mean, 0, 1e-9);
  EXPECT_EQ(results[2].group, "8x2, 8x1-cpu-sockets");
  EXPECT_NEAR(results[2].interval.mean, 10, 1e-9);
}

// Six seeds, three on each placement, as where a matrix went on elsewhere.
TEST(Contrasts, OfAccuracyCountEachSeedOnceWhereRunsAreSpreadOverPlacements) {
  Experiment experiment = synthetic_experiment(6);
  Contrast cost = experiment.contrasts[0];
  cost.metric = "images_per_s";
  experiment.contrasts.push_back(cost);
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    const bool sync = run.strategy.at("name") == "sync";
    const int ranks = std::min<int>(static_cast<int>(run.towers()), run.seed < 3 ? 8 : 4);
    records.push_back(synthetic_record(run, sync ? 0.6 : 0.5, ranks));
  }
  const ExperimentReport report = make_report(experiment, records);
  ASSERT_EQ(report.contrasts.size(), 2u);
  EXPECT_EQ(report.contrasts[0].interval.n, 6u);
  EXPECT_EQ(report.contrasts[1].interval.n, 3u) << "costs on one placement at a time";
  EXPECT_NE(report_text(report).find("Some cells have runs on several placements"), std::string::npos);
}

// Runs of both strategies that average weights never, every 4 and every 16 steps; where they do, IoU is 0.02
// and 0.1 lower and images/s are higher by as many as there are steps between averages. Over sockets all make
// 20 images/s fewer.
struct Averaging {
  Experiment experiment = synthetic_experiment(0);
  std::vector<Record> records;

  Averaging() {
    experiment.axes = {"seed", "gradient_route,average_weights_every", "strategy"};
    for (uint64_t seed = 0; seed < 6; ++seed) {
      for (const int every : {0, 4, 16})
        for (const char* strategy : {"per_tower", "sync"}) add(strategy, every, seed);
    }
  }
  void add(const std::string& strategy, int every, uint64_t seed) {
    RunSpec run = synthetic_run(strategy, 2, 4, seed);
    run.id += "-" + std::to_string(every);
    run.resolved["gradient_route"] = "reducer";
    run.resolved["average_weights_every"] = every == 0 ? Json() : Json(every);
    experiment.runs.push_back(run);
    for (const bool sockets : {false, true}) {
      const double noise = 0.001 * static_cast<double>(seed % 2) * every;
      RunAccount account = synthetic_account(run,
                                             every == 0   ? 0.5
                                             : every == 4 ? 0.48 + noise
                                                          : 0.4 + noise,
                                             2);
      if (sockets) account.placement.exchange = Exchange::sockets;
      account.result["throughput"]["images_per_s"] = 100 + every + noise - (sockets ? 20 : 0);
      records.emplace_back(compose_record(account), "record.json");
    }
  }
  std::vector<ContrastResult> results(const std::string& metric, const Json& runs, const Json& above) {
    Contrast contrast;
    contrast.metric = metric;
    contrast.runs = runs;
    contrast.above_runs = above;
    experiment.contrasts = {contrast};
    return make_report(experiment, records).contrasts;
  }
};

TEST(Contrasts, CompareRunsThatDifferInOneKeyAloneWithinEachStrategy) {
  Averaging averaging;
  const auto results =
      averaging.results("mean_iou", {{"average_weights_every", 16}}, {{"average_weights_every", nullptr}});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].group, "gradient_route=reducer, per_tower");
  EXPECT_EQ(results[1].group, "gradient_route=reducer, sync");
  for (const ContrastResult& result : results) {
    EXPECT_EQ(result.interval.n, 6u);
    EXPECT_NEAR(result.interval.mean, -0.092, 1e-12);
    EXPECT_EQ(result.verdict, Verdict::worse);
    EXPECT_EQ(pair_name(result.contrast), "average_weights_every: 16 - none");
  }
}

TEST(Contrasts, CompareCostsOfSuchRunsOnEachPlacementApart) {
  Averaging averaging;
  const auto results = averaging.results(
      "images_per_s", {{"average_weights_every", 16}, {"strategy", "sync"}}, {{"average_weights_every", 4}});
  ASSERT_EQ(results.size(), 4u);  // two placements, and both strategies with four
  EXPECT_EQ(results[0].group, "gradient_route=reducer, 2x1-cpu");
  EXPECT_EQ(results[1].group, "gradient_route=reducer, 2x1-cpu-sockets");
  EXPECT_EQ(results[0].strategies, (std::array<std::string, 2>{"sync", "per_tower"}));
  EXPECT_EQ(results[2].strategies, (std::array<std::string, 2>{"sync", "sync"}));
  for (const ContrastResult& result : results) EXPECT_NEAR(result.interval.mean, 12.006, 1e-9);
  EXPECT_EQ(pair_name(results[0].contrast),
            "average_weights_every=16, strategy=sync - average_weights_every=4");
}

TEST(Contrasts, CompareNumbersOfRanksByTheSameWayOfExchanging) {
  Experiment experiment = synthetic_experiment(6);
  const std::vector<Record> records = by_both_exchanges(experiment, [](const RunSpec& run, bool sockets) {
    return static_cast<double>(run.towers()) * (sockets ? 10 : 20);
  });
  Contrast& contrast = experiment.contrasts[0];
  contrast.metric = "images_per_s";
  contrast.strategy = contrast.above = "";
  contrast.at = {{"strategy", "sync"}};
  contrast.runs = {{"towers", 8}, {"batch_per_tower", 2}};
  contrast.above_runs = {{"towers", 2}, {"batch_per_tower", 8}};
  const ExperimentReport report = make_report(experiment, records);
  ASSERT_EQ(report.contrasts.size(), 2u);
  EXPECT_EQ(report.contrasts[0].group, "sync, 8x1-cpu - 2x1-cpu");
  EXPECT_NEAR(report.contrasts[0].interval.mean, 120, 1e-9);
  EXPECT_EQ(report.contrasts[1].group, "sync, 8x1-cpu-sockets - 2x1-cpu-sockets");
  EXPECT_NEAR(report.contrasts[1].interval.mean, 60, 1e-9);
  const std::string name = "towers=8, batch_per_tower=2 - towers=2, batch_per_tower=8";
  EXPECT_NE(report_markdown(report).find(name), std::string::npos);
  const Json json = report_json(report).at("contrasts").at(0);
  EXPECT_EQ(json.at("sides"), Json::array({"towers=8, batch_per_tower=2", "towers=2, batch_per_tower=8"}));
  EXPECT_EQ(json.at("strategies"), Json::array({"sync", "sync"}));
}

// A throughput that nobody may claim is no comparison: it makes the others' p no larger.
TEST(Contrasts, OfThroughputAreNotClaimedWhereTowersShareARank) {
  Experiment experiment = synthetic_experiment(6);
  const auto accuracy = [](const RunSpec& run) {
    return (run.strategy.at("name") == "sync" ? 0.5 : 0.45) +
           0.001 * static_cast<double>(run.seed * run.seed);
  };
  experiment.contrasts.push_back(experiment.contrasts[0]);
  experiment.contrasts[1].metric = "images_per_s";
  for (const int ranks : {1, 8}) {  // with 8 towers on them
    std::vector<Record> records;
    for (const RunSpec& run : experiment.runs) {
      records.push_back(
          synthetic_record(run, accuracy(run), ranks == 1 ? 1 : static_cast<int>(run.towers())));
    }
    const ExperimentReport report = make_report(experiment, records);
    ASSERT_EQ(report.contrasts.size(), 2U);
    const ContrastResult &first = report.contrasts[0], &throughput = report.contrasts[1];
    EXPECT_EQ(throughput.verdict == Verdict::not_claimed, ranks == 1);
    EXPECT_EQ(throughput.warning.starts_with("no throughput is claimed of runs with several towers"),
              ranks == 1);
    EXPECT_DOUBLE_EQ(first.holm_p, std::min(1.0, (ranks == 1 ? 1 : 2) * first.p));
    const std::string learned = report.learned.at(0);
    EXPECT_EQ(learned.ends_with(", 1 not claimed."), ranks == 1) << learned;
  }
}

}  // namespace
}  // namespace bnlab
