// The page of bnlab watch: its data, and the words around them, which live.html's script draws.
#include <gtest/gtest.h>

#include "harness/report/live.hpp"
#include "tests/report/page_data.hpp"

namespace bnlab::live_html_test {
namespace {

using test::data_of;

LiveRun run(const std::string& strategy, uint64_t seed, std::optional<Status> ended, int points = 3) {
  LiveRun run;
  run.run_id = strategy + "-seed" + std::to_string(seed);
  run.placement = "2x1-cpu";
  run.strategy = strategy;
  run.seed = seed;
  run.ended = ended;
  for (int i = 1; i <= points; ++i) run.loss.emplace_back(10 * i, 2.0 / i);
  run.metric = {{10 * points, 0.5}};
  run.metric_name = "saved mean_iou";
  return run;
}

LiveExperiment experiment() {
  LiveExperiment one;
  one.status.experiment = "exp</script><script>";
  one.status.asked = 4;
  one.status.finished = 2;
  one.status.failed = 1;
  one.status.failures = {
      {Status::diverged, "the loss is <img src=http://x onerror=y> & worse", 1, "b-seed1", "results/b"}};
  one.status.problems = {"record.json is damaged"};
  LiveRun live = run("a", 2, std::nullopt);
  live.step = 30;
  live.steps = 100;
  live.share = 0.3;
  live.elapsed_s = 30;
  live.fault = "the loss is not finite";
  one.runs = {live, run("a", 0, Status::ok), run("b", 1, Status::diverged)};
  return one;
}

TEST(LiveHtml, HasRunsUnderWayCurvesAndFailures) {
  const Json data = data_of(live_html({experiment()}, 5)), one = data.at("experiments").at(0);
  EXPECT_EQ((std::vector<int>{one.at("asked"), one.at("finished"), one.at("ok"), one.at("failed")}),
            (std::vector<int>{4, 2, 1, 1}));
  EXPECT_EQ(one.at("failed_runs"),
            Json({"1 diverged: the loss is <img src=http://x onerror=y> & worse (b-seed1)",
                  "record.json is damaged"}));
  EXPECT_EQ(one.at("runs").at(0),
            Json::parse(R"({"id": "a-seed2", "placement": "2x1-cpu", "strategy": "a", "group": "all",
      "seed": 2, "ended": null, "percent": 30, "progress": "step 30/100  1 min 10 s left", "fault": "the loss is not finite",
      "loss": [[10, 2.0], [20, 1.0], [30, 0.6666666666666666]], "metric_name": "saved mean_iou", "metric": [[30, 0.5]]})"));
  EXPECT_EQ(one.at("runs").at(1).at("ended"), "ok");
  EXPECT_EQ(one.at("runs").at(2).at("ended"), "diverged");
}

// What the page says beside its data.
TEST(LiveHtml, SaysWhatItsNumbersAre) {
  test::expect_in_order(live_html({experiment()}, 5), R"(>ended<
${strategy} ${short(mean)} (${counted(ends.length, 'run')})
', under way' : failed ? `, ${run.ended}`
${run.strategy}, seed ${run.seed}: ${short(value)} at step ${step}
${title} by step, last: ${lastValues(
'step'
Curves, a line per seed
Strategies
${groups.length - mostGroups} more groups of cells have no charts here
run.id
run.placement
${run.percent} % done
run.progress
loss ${short(
${run.metric_name} ${short(
run.fault
[failed, 'failed'], [live.length, 'under way'], [asked - finished - live.length, 'not begun']
experiment.question
${ok} of ${asked} runs ok
runs that have ended
Under way
Failed runs
Finished cells
Means over n seeds; ± is the half-width of their 95 % t interval. images/s only where it counts.
${first.finished}/${first.asked} ${names}
bnlab watch, ${data.written}
'Go on' : 'Pause'
every ${short(data.refresh_s)} s)");
}

TEST(LiveHtml, IsReadAsTextAlone) {
  const std::string page = live_html({experiment()}, 5);
  test::expect_closed(page);
  EXPECT_EQ(data_of(page).at("experiments").at(0).at("name"), "exp</script><script>");
}

TEST(LiveHtml, IsLoadedAgainUntilTheEnd) {
  EXPECT_EQ(data_of(live_html({experiment()}, 5)).at("refresh_s"), 5);
  const std::string last = live_html({experiment()}, 0);
  EXPECT_EQ(data_of(last).at("refresh_s"), 0);
  for (const char* part :
       {"if (data.refresh_s > 0) {", "location.reload();", "1000 * Math.max(1, data.refresh_s)"})
    EXPECT_NE(last.find(part), std::string::npos) << part;
}

TEST(LiveHtml, LongCurvesAreThinnedAndKeepTheirEnd) {
  LiveExperiment one = experiment();
  one.runs = {run("a", 0, std::nullopt, 100000)};
  const Json loss = data_of(live_html({one}, 5)).at("experiments").at(0).at("runs").at(0).at("loss");
  EXPECT_LE(loss.size(), 240u);
  EXPECT_EQ(loss.back().at(0), 1000000);
}

}  // namespace
}  // namespace bnlab::live_html_test
