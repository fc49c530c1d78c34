// bnlab watch, and the command of the user's that is told of failures and ends.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/store/run_folder.hpp"
#include "tests/cli/on_results.hpp"
#include "tests/report/page_data.hpp"

namespace bnlab {
namespace {

using test::Answer;
using test::call;
using test::has;
namespace fs = std::filesystem;

class Watch : public test::OnResults {
 protected:
  std::string spec(const std::string& behaviour) {
    return scratch_.write_spec(test::behaves(behaviour), R"(, "matrix": {"seed": [0, 1]})");
  }
  Answer run(const std::string& of, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"run", of, "--device", "cpu", "--ranks", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return call_with_results(words);
  }
  // A shell command that writes down what it is told.
  std::string teller() const {
    return R"(printf '%s|%s|%s\n' "$BNLAB_EVENT" "$BNLAB_RUN" "$BNLAB_MESSAGE" >> )" + told_file();
  }
  std::string told_file() const { return scratch_ / "told"; }
  // What it was told, once that is so many lines; it is not waited for.
  std::vector<std::string> told(size_t lines) const {
    std::vector<std::string> found;
    for (int i = 0; i < 400 && found.size() < lines; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      found.clear();
      std::ifstream in(told_file());
      for (std::string line; std::getline(in, line);) found.push_back(line);
    }
    std::ranges::sort(found);
    return found;
  }
};

TEST_F(Watch, TakesASpecAsItsSiblingsDo) {
  const std::string of = spec("ok");
  const Answer before = call_with_results({"watch", of, "--once"});
  EXPECT_EQ(before.code, exit_code::kOk) << before.err;
  EXPECT_TRUE(has(before.out, "no run is under way")) << before.out;
  run(of);
  for (const std::string& name : {of, scratch_ / "results/fake", std::string("fake")}) {
    const Answer answer = call_with_results({"watch", name, "--once"});
    EXPECT_EQ(answer.code, exit_code::kOk) << name << answer.err;
    EXPECT_TRUE(has(answer.out, "2 ok")) << name << answer.out;
  }
  const Answer wrong = call_with_results({"watch", "fkae", "--once"});
  EXPECT_EQ(wrong.code, exit_code::kUsage);
  EXPECT_TRUE(has(wrong.err, "fkae: no runs there; expected a spec, RESULTS or RESULTS/EXPERIMENT"))
      << wrong.err;
}

TEST_F(Watch, WithoutATerminalItShowsTheEndAndComesBack) {
  const std::string of = spec("ok");
  run(of);
  const Answer answer = call_with_results({"watch", of});
  EXPECT_EQ(answer.code, exit_code::kOk) << answer.err;
  EXPECT_TRUE(has(answer.out, "2 ok")) << answer.out;
  EXPECT_FALSE(has(answer.out, "\033[")) << answer.out;
}

// What an interrupted --redo leaves: checkpoints beside a result, and nobody who works on them.
TEST_F(Watch, CheckpointsThatNobodyWorksOnAreNoRunUnderWay) {
  const std::string of = spec("ok");
  run(of);
  const fs::path folder = scratch_.records().at(0).file().parent_path();
  fs::create_directories(attempt_folder(folder, 1) / kCheckpointsFolder);
  EXPECT_TRUE(has(call_with_results({"watch", of, "--once"}).out, "no run is under way"));
  std::ofstream(claim_file(folder, 1)) << "{}";
  EXPECT_FALSE(has(call_with_results({"watch", of, "--once"}).out, "no run is under way"));
}

TEST_F(Watch, ThePageRefreshesItselfUntilTheMatrixHasEnded) {
  const std::string of = spec("ok"), page = scratch_ / "page.html";
  run(of, {"--only", "seed=0"});
  ASSERT_EQ(call_with_results({"watch", of, "--once", "--html", page}).code, exit_code::kOk);
  const auto expect = [&](int ok, double refresh_s) {
    const Json data = test::data_of(read_text(page)), one = data.at("experiments").at(0);
    EXPECT_EQ(data.at("refresh_s"), refresh_s);
    EXPECT_EQ(one.at("asked"), 2);
    EXPECT_EQ(one.at("ok"), ok);
    EXPECT_EQ(one.at("runs").size(), static_cast<size_t>(ok));
  };
  expect(1, 5);
  run(of);
  const Answer ended = call_with_results({"watch", of, "--html", page});  // comes back by itself
  EXPECT_EQ(ended.code, exit_code::kOk) << ended.err;
  expect(2, 0);
}

TEST_F(Watch, WithoutATerminalItSaysThatItWaits) {
  const std::string of = spec("ok");
  run(of);
  const fs::path folder = run_folders(scratch_ / "results", "fake").front(), aside = scratch_ / "aside";
  fs::rename(folder, aside);
  Answer answer;
  std::thread watching([&] { answer = call_with_results({"watch", of, "--every", "0.1"}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  fs::rename(aside, folder);
  watching.join();
  EXPECT_TRUE(
      has(answer.out, "no run is under way; waiting for those that are missing: fake 1 (Ctrl-C ends)\n"))
      << answer.out;
}

TEST_F(Watch, RunTellsOfFailedRunsAndOfTheEnd) {
  run(spec("refuse"), {"--notify", teller()});
  const std::vector<std::string> lines = told(3);
  ASSERT_EQ(lines.size(), 3u) << testing::PrintToString(lines);
  EXPECT_EQ(lines[0], "ended||fake has ended: 0 runs ok, 2 failed");
  for (size_t i = 1; i < 3; ++i)
    EXPECT_TRUE(lines[i].starts_with("failed|") && has(lines[i], "ended as error: ")) << lines[i];
}

TEST_F(Watch, RunTellsOfTheEndAloneWhereNothingFailed) {
  run(spec("ok"), {"--notify", teller()});
  EXPECT_EQ(told(1), (std::vector<std::string>{"ended||fake has ended: 2 runs ok, 0 failed"}));
}

TEST_F(Watch, WatchTellsOfARunThatFailsMeanwhile) {
  const std::string of = spec("refuse"), page = scratch_ / "page.html";
  run(of);
  const fs::path folder = run_folders(scratch_ / "results", "fake").front(), aside = scratch_ / "aside";
  fs::rename(folder, aside);
  std::thread watching(
      [&] { call_with_results({"watch", of, "--html", page, "--notify", teller(), "--every", "0.1"}); });
  for (int i = 0; i < 400 && !fs::exists(page); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  fs::rename(aside, folder);
  watching.join();
  const std::vector<std::string> lines = told(2);
  ASSERT_EQ(lines.size(), 2u) << testing::PrintToString(lines);
  EXPECT_EQ(lines[0], "ended||fake has ended: 0 runs ok, 2 failed");
  EXPECT_TRUE(lines[1].starts_with("failed|" + folder.parent_path().filename().string() + "|")) << lines[1];
}

}  // namespace
}  // namespace bnlab
