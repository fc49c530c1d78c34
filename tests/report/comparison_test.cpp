#include "harness/report/comparison.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/store/synthetic.hpp"

namespace bnlab::comparison_test {
namespace {

// Two towers on two ranks, both strategies, `seeds` seeds: mean IoU 0.5 + seed / 100, 45.5 images/s.
std::vector<Record> records_of(int seeds, const std::function<void(RunAccount&)>& change = {}) {
  std::vector<Record> records;
  for (const RunSpec& run : synthetic_experiment(seeds).runs) {
    if (run.towers() != 2) continue;
    RunAccount account = synthetic_account(run, 0.5 + static_cast<double>(run.seed) / 100, 2);
    if (change) change(account);
    records.push_back(Record(compose_record(account), "record.json"));
  }
  return records;
}

const ComparedMetric& metric(const Comparison& comparison, size_t cell, const std::string& name) {
  const auto& metrics = comparison.cells.at(cell).metrics;
  const auto found = std::ranges::find(metrics, name, &ComparedMetric::metric);
  if (found == metrics.end()) throw std::out_of_range(name);
  return *found;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Slower by about a tenth, and a little differently for every seed.
void slow_down(RunAccount& account) {
  Json& rate = account.result["throughput"]["images_per_s"];
  rate = 41.0 + 0.1 * static_cast<double>(account.spec.seed);
}

TEST(Comparison, ResultsAreEqualToThemselves) {
  const Comparison comparison = compare(records_of(6), records_of(6), 0.01);
  EXPECT_EQ(comparison.pairs, 12);
  ASSERT_EQ(comparison.cells.size(), 2u);
  EXPECT_EQ(comparison.cells[0].name, "per_tower 2x8");
  EXPECT_EQ(comparison.cells[0].metrics.size(), 4u);
  for (const ComparedCell& cell : comparison.cells)
    for (const ComparedMetric& each : cell.metrics) EXPECT_EQ(each.change, Change::equal) << each.metric;
  EXPECT_TRUE(comparison.spec.empty() && comparison.environment.empty());
  EXPECT_EQ(comparison.regressions(), 0);
}

TEST(Comparison, ASlowerBIsARegressionAndAFasterOneIsNot) {
  const Comparison slower = compare(records_of(6), records_of(6, slow_down), 0.01);
  EXPECT_EQ(metric(slower, 0, "images_per_s").change, Change::worse);
  EXPECT_NEAR(metric(slower, 0, "images_per_s").difference.mean, -4.25, 1e-9);
  EXPECT_EQ(metric(slower, 0, "mean_iou").change, Change::equal);
  EXPECT_EQ(slower.regressions(), 2);  // in both cells
  const Comparison faster = compare(records_of(6, slow_down), records_of(6), 0.01);
  EXPECT_EQ(metric(faster, 0, "images_per_s").change, Change::better);
  EXPECT_EQ(faster.regressions(), 0);
  EXPECT_EQ(compare(records_of(6), records_of(6, slow_down), 0.2).regressions(), 0);  // within the tolerance
}

TEST(Comparison, TimesInTurnsAreComparedByTheRunBesideThem) {
  const auto times = [](double log) {
    return [log](RunAccount& account) {
      account.result["timing"] = {{"log_images_per_s", log + 0.001 * static_cast<double>(account.spec.seed)},
                                  {"disturbed", false}};
    };
  };
  const Comparison near = compare(records_of(6, times(-0.2)), records_of(6, times(-0.195)), 0.01);
  const ComparedMetric& timed = metric(near, 0, "log_images_per_s");
  EXPECT_NEAR(timed.difference.mean, 0.005, 1e-12);
  EXPECT_EQ(timed.change, Change::equal) << "within 1 %, not within 1 % of a logarithm";
  EXPECT_EQ(near.repeated().cells, 2);
  EXPECT_EQ(near.repeated().within, 2);
  EXPECT_EQ(near.repeated().overlapping, 0);
  EXPECT_TRUE(has(comparison_text(near, {}), "Timed in turns: of 2 cells")) << comparison_text(near, {});
  const Comparison far = compare(records_of(6, times(-0.2)), records_of(6, times(-0.1)), 0.01);
  EXPECT_EQ(far.repeated().within, 0);
  EXPECT_EQ(metric(far, 0, "log_images_per_s").change, Change::better);
  EXPECT_EQ(compare(records_of(6), records_of(6), 0.01).repeated().cells, 0);
}

TEST(Comparison, MoreMemoryIsWorse) {
  const Comparison comparison = compare(
      records_of(2),
      records_of(
          2,
          [](RunAccount& account) { account.result["memory"]["peak_memory_bytes"] = {1, 8 * 1024 * 1024}; }),
      0.01);
  EXPECT_EQ(metric(comparison, 0, "peak_memory_bytes").change, Change::worse);
  EXPECT_TRUE(metric(comparison, 0, "peak_memory_bytes").few_seeds());
  EXPECT_TRUE(has(comparison_text(comparison, std::nullopt), "worse (few seeds)"));
}

TEST(Comparison, WhatIsNotBeyondTheIntervalIsUndecided) {
  const Comparison comparison = compare(records_of(3),
                                        records_of(3,
                                                   [](RunAccount& account) {
                                                     account.result["final"]["saved"]["mean_iou"] =
                                                         account.spec.seed == 0 ? 0.1 : 0.6;
                                                   }),
                                        0.01);
  EXPECT_EQ(metric(comparison, 0, "mean_iou").change, Change::undecided);
  const Comparison single = compare(records_of(1), records_of(1, slow_down), 0.01);
  EXPECT_EQ(metric(single, 0, "images_per_s").change, Change::undecided);  // no interval from one pair
}

TEST(Comparison, PairsRunsByWhatTheirSpecsHaveInCommon) {
  const auto longer = [](RunAccount& account) {
    account.spec.id += "-longer";
    account.spec.resolved["steps"] = 600;
  };
  const Comparison comparison = compare(records_of(3), records_of(3, longer), 0.01);
  EXPECT_EQ(comparison.pairs, 6);
  ASSERT_EQ(comparison.spec.size(), 1u);
  EXPECT_EQ(comparison.spec[0].key, "steps");
  EXPECT_EQ(comparison.spec[0].b, (std::set<std::string>{"600"}));
  EXPECT_TRUE(has(comparison_text(comparison, std::nullopt), "steps"));
}

// Eight towers are paired with two, and one task with another, but neither is a worse other.
TEST(Comparison, OfUnlikeSpecsHasNoVerdict) {
  const std::function<void(RunAccount&)> changes[] = {
      [](RunAccount& account) { account.spec.resolved["steps"] = 4; },
      [](RunAccount& account) { account.spec.resolved["towers"] = 8; },
      [](RunAccount& account) { account.spec.resolved["task"] = {{"name", "shapes"}, {"size", {64, 64}}}; }};
  for (const auto& change : changes) {
    const Comparison unlike = compare(records_of(6), records_of(6, change), 0.01);
    EXPECT_EQ(unlike.pairs, 12);
    EXPECT_EQ(unlike.regressions(), std::nullopt);
    const std::string text = comparison_text(unlike, std::nullopt);
    EXPECT_TRUE(has(text, "No verdict") && !has(text, "No regression")) << text;
    EXPECT_TRUE(comparison_json(unlike, std::nullopt).at("regressions").is_null());
    EXPECT_EQ(unlike.cells.at(0).metrics.size(), 4U) << "all rows are shown";
  }
}

TEST(Comparison, OfTheSameSpecElsewhereHasAVerdict) {
  const Comparison moved =
      compare(records_of(6),
              records_of(6, [](RunAccount& account) { account.placement = {1, 2, Device::cpu}; }), 0.01);
  EXPECT_EQ(moved.pairs, 12);
  EXPECT_EQ(moved.regressions(), 0);
}

TEST(Comparison, NamesACellByTheKeysThatTellItApart) {
  std::vector<Record> records = records_of(2);
  for (const Record& record : records_of(2, [](RunAccount& account) {
         account.spec.resolved["optimizer"] = {{"name", "sgd"}, {"lr", 0.01}};
         account.spec.resolved["precision"] = "float64";  // moves together with it
         account.spec.id += "-other";
       })) {
    records.push_back(record);
  }
  const Comparison comparison = compare(records, records, 0.01);
  ASSERT_EQ(comparison.cells.size(), 4u);
  EXPECT_EQ(comparison.cells[0].name, "per_tower 2x8, precision=float32");
}

TEST(Comparison, NeverPairsOneSeedWithAnother) {
  const auto other_seed = [](RunAccount& account) {
    account.spec.seed = 7;
    account.spec.resolved["seed"] = 7;
  };
  EXPECT_EQ(compare(records_of(1), records_of(1, other_seed), 0.01).pairs, 0);
}

TEST(Comparison, ClaimsNoThroughputOfRunsThatSharedTheMachine) {
  const Comparison comparison =
      compare(records_of(6), records_of(6, [](RunAccount& account) { account.jobs = 2; }), 0.01);
  for (const ComparedMetric& each : comparison.cells.at(0).metrics)
    EXPECT_TRUE(each.metric == "mean_iou" || each.metric == "peak_memory_bytes") << each.metric;
  EXPECT_TRUE(has(comparison_text(comparison, std::nullopt), "12 pairs are not compared"));
}

TEST(Comparison, NamesWhatDiffersInTheEnvironment) {
  const Comparison comparison = compare(records_of(1),
                                        records_of(1,
                                                   [](RunAccount& account) {
                                                     account.environment["cpu"] = "another one";
                                                     account.environment["libraries"]["libtorch"] = "2.12.0";
                                                   }),
                                        0.01);
  ASSERT_EQ(comparison.environment.size(), 2u);
  EXPECT_EQ(comparison.environment[0].key, "cpu");
  EXPECT_EQ(comparison.environment[1].key, "libraries.libtorch");
  EXPECT_EQ(comparison.environment[1].a, (std::set<std::string>{"2.11.0"}));
}

TEST(Comparison, ARunThatFailsInBIsARegression) {
  std::vector<Record> b = records_of(2);
  const auto first = synthetic_experiment(2).runs[2];  // two towers, per_tower, seed 0
  b[0] = synthetic_failure(first, Status::crashed, 2);
  const Comparison comparison = compare(records_of(2), b, 0.01);
  EXPECT_EQ(comparison.broken, 1);
  EXPECT_EQ(comparison.regressions(), 1);
  EXPECT_TRUE(has(comparison_text(comparison, std::nullopt), "1 crashed: it went wrong"));
}

TEST(Comparison, OnlyNarrowsTheRowsAndNothingElse) {
  const Comparison comparison = compare(records_of(6), records_of(6, slow_down), 0.01);
  const Json all = comparison_json(comparison, std::nullopt);
  const Json worse = comparison_json(comparison, Change::worse);
  EXPECT_EQ(all.at("cells").at(0).at("metrics").size(), 4u);
  ASSERT_EQ(worse.at("cells").at(0).at("metrics").size(), 1u);
  EXPECT_EQ(worse.at("cells").at(0).at("metrics").at(0).at("b_is"), "worse");
  EXPECT_EQ(worse.at("regressions"), 2);
  EXPECT_FALSE(has(comparison_text(comparison, Change::worse), "mean_iou"));
  EXPECT_TRUE(has(comparison_text(comparison, Change::better), "Nothing is better."));
}

}  // namespace
}  // namespace bnlab::comparison_test
