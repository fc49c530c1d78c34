#include "harness/report/live_html.hpp"

#include <gtest/gtest.h>

namespace bnlab::live_html_test {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

RunCurve curve(const std::string& strategy, uint64_t seed, std::optional<Status> ended, int points = 3) {
  RunCurve run{strategy, "all", seed, ended, {}, {}};
  for (int i = 1; i <= points; ++i) run.loss.emplace_back(10 * i, 2.0 / i);
  run.metric = {{10 * points, 0.5}};
  return run;
}

LiveExperiment experiment() {
  LiveExperiment one;
  one.status.experiment = "exp<script>";
  one.status.asked = 4;
  one.status.finished = 2;
  one.status.failed = 1;
  one.status.failures = {{Status::diverged, "the loss is not finite & worse", 1, "b-seed1", "results/b"}};
  LiveRun live;
  live.run_id = "a-seed2";
  live.placement = "2x1-cpu";
  live.step = 30;
  live.steps = 100;
  live.share = 0.3;
  live.elapsed_s = 30;
  live.loss = {2, 1};
  live.loss_steps = {10, 30};
  one.under_way = {live};
  one.metric = "saved mean_iou";
  one.curves = {curve("a", 0, Status::ok), curve("b", 1, Status::diverged), curve("a", 2, std::nullopt)};
  return one;
}

TEST(LiveHtml, HasRunsUnderWayCurvesAndFailures) {
  const std::string page = live_html({experiment()}, 5);
  EXPECT_TRUE(has(page, "<strong>a-seed2</strong>")) << page;
  EXPECT_TRUE(has(page, "step 30/100  1 min 10 s left"));
  EXPECT_TRUE(has(page, "1 of 4 runs ok, 1 failed, 1 under way, 1 not begun"));
  EXPECT_TRUE(has(page, "1 diverged: the loss is not finite &amp; worse"));
  EXPECT_EQ(count(page, "<path class=\"curve\""), 6u);  // three of loss and three of the metric
  EXPECT_TRUE(has(page, "<title>a, seed 2: 0.6667 at step 30, under way</title>"));
  EXPECT_TRUE(has(page, "<title>b, seed 1: 0.6667 at step 30, diverged</title>"));
  EXPECT_TRUE(has(page, "aria-label=\"loss by step, last: a 0.6667 (2 runs), b 0.6667 (1 run)\""));
}

TEST(LiveHtml, IsReadAsTextAlone) {
  const std::string page = live_html({experiment()}, 5);
  EXPECT_FALSE(has(page, "exp<script>"));
  EXPECT_TRUE(has(page, "exp&lt;script&gt;"));
  EXPECT_EQ(count(page, "<script"), 1u);
  EXPECT_FALSE(has(page, "http://")) << "nothing outside the page is loaded";
  EXPECT_FALSE(has(page, "https://"));
}

TEST(LiveHtml, RefreshesItselfWithAndWithoutScripts) {
  const std::string page = live_html({experiment()}, 5);
  EXPECT_TRUE(has(page, "}, 5000);"));
  EXPECT_TRUE(has(page, "<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>"));
  const std::string last = live_html({experiment()}, 0);
  EXPECT_FALSE(has(last, "refresh"));
  EXPECT_EQ(count(last, "<script"), 0u);
}

TEST(LiveHtml, LongCurvesAreThinnedAndKeepTheirEnd) {
  LiveExperiment one = experiment();
  one.curves = {curve("a", 0, std::nullopt, 100000)};
  const std::string page = live_html({one}, 5);
  EXPECT_LT(page.size(), 20000u);
  EXPECT_TRUE(has(page, "at step 1000000, under way"));
}

TEST(LiveHtml, AConstantOrASingleValueHasAChart) {
  LiveExperiment one = experiment();
  one.curves = {curve("a", 0, std::nullopt, 1)};
  one.curves[0].metric.clear();
  const std::string page = live_html({one}, 5);
  EXPECT_EQ(count(page, "<path class=\"curve\""), 1u);
  EXPECT_FALSE(has(page, "nan"));
  EXPECT_FALSE(has(page, "inf"));
}

}  // namespace
}  // namespace bnlab::live_html_test
