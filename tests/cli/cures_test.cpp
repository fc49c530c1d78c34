// The commands that the program proposes, typed as they are printed, and what comes of them.
// What messages about data propose is typed by tests/tasks/test_cures.py.
#include <unistd.h>
#include <wordexp.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "harness/store/records.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/json.hpp"
#include "harness/support/shell.hpp"
#include "tests/cli/on_results.hpp"

namespace bnlab::cures_test {
namespace {

using test::Answer;
using test::behaves;
using test::call;
using test::has;

class Cures : public test::OnResults {
 protected:
  Cures() { std::filesystem::create_directory(folder_); }

  // The answer to the command behind `before` in what was said, up to the end of its line.
  static Answer type(const std::string& said, const std::string& before, const std::string& behind = "\n") {
    const size_t at = said.find(before + "bnlab ");
    if (at == std::string::npos) {
      ADD_FAILURE() << "no command behind '" << before << "' in: " << said;
      return {};
    }
    const size_t begin = at + before.size() + std::string("bnlab ").size();
    ::wordexp_t found{};
    EXPECT_EQ(::wordexp(said.substr(begin, said.find(behind, begin) - begin).c_str(), &found, WRDE_NOCMD), 0)
        << said;
    const std::vector<std::string> words(found.we_wordv, found.we_wordv + found.we_wordc);
    ::wordfree(&found);
    return call(words);
  }
  Answer run(const std::string& spec, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"run", spec, "--results", results_, "--ranks", "1"});
    return call(more);
  }
  std::vector<Record> records() const { return list_records(results_, "fake"); }
  void change_record(const std::string& path, const Json& value) {
    Json record = records().at(0).json();
    record[Json::json_pointer(path)] = value;
    write_json(records().at(0).file(), record);
  }

  const std::string folder_ = scratch_ / "it's here; $HOME";
  const std::string results_ = folder_ + "/results";
};

TEST_F(Cures, OfInitPlansTheSpecThatItHasWritten) {
  const Answer planned = type(call({"init", folder_ + "/mine.json"}).err, "see its runs with: ");
  EXPECT_TRUE(planned.err.empty() || !has(planned.err, "no such file")) << planned.err;
  EXPECT_TRUE(has(planned.err + planned.out, folder_ + "/mine.json")) << planned.out << planned.err;
}

TEST_F(Cures, OfPackVerifiesTheFolder) {
  run(scratch_.write_spec(behaves("ok")));
  const Answer checked =
      type(call({"pack", results_ + "/fake", folder_ + "/all"}).err, "whoever gets it verifies it with: ");
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_TRUE(has(checked.out, "0 problems")) << checked.out;
}

TEST_F(Cures, OfAnExperimentInPlaceOfTheFolderAroundItShowsItsStatus) {
  run(scratch_.write_spec(behaves("ok")));
  const Answer status = type(call({"status", "--results", results_ + "/fake"}).err, "without --results: ");
  EXPECT_EQ(status.code, 0) << status.err;
  EXPECT_TRUE(has(status.out, "fake")) << status.out;
}

TEST_F(Cures, OfAnEarlierSpecReportsTheOneThatWasRunLast) {
  const auto spec = scratch_.write_spec(behaves("ok"));
  run(spec, {"strategy=right"});
  const Answer report =
      type(call({"report", spec, "--results", results_}).err, "the spec that was run last: ");
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_TRUE(has(report.out, "right") && !has(report.out, "left")) << report.out;
}

TEST_F(Cures, OfAReportOfNothingStartTheRuns) {
  const auto spec = scratch_.write_spec(behaves("ok"));
  const Answer report = call({"report", spec, "steps=3", "--results", results_});
  EXPECT_EQ(type(report.out, "start them: ").code, 0) << report.out;
  EXPECT_EQ(records().at(0).at("spec.steps"), 3);
}

TEST_F(Cures, OfStaleAndDisturbedRunsMakeThemAgain) {
  const auto spec = scratch_.write_spec(behaves("ok"));
  run(spec);
  change_record("/code/numerics/base", "0123456789abcdef");
  EXPECT_EQ(type(run(spec).err, "stale runs start again with: ").code, 0);
  EXPECT_NE(records().at(0).json().at("code").at("numerics").at("base"), "0123456789abcdef");
  change_record("/result/timing", {{"disturbed", true}});
  EXPECT_EQ(type(run(spec).err, "timed again with: ").code, 0);
  EXPECT_FALSE(has(run(spec).err, "disturbed: "));
}

// SPEC stands for the user's own words.
TEST_F(Cures, OfAStatusMakeStaleAndDisturbedRunsAgain) {
  const auto spec = scratch_.write_spec(behaves("ok"));
  run(spec);
  const auto type_as_status_says = [&](const std::string& behind) {
    std::string said = call({"status", "fake", "--results", results_}).out;
    const size_t at = said.find("SPEC --redo");
    if (at != std::string::npos)
      said.replace(at, 4, shell_command(spec, {"--ranks", "1", "--results", results_}));
    EXPECT_EQ(type(said, "(", behind).code, 0) << said;
    EXPECT_FALSE(has(call({"status", "fake", "--results", results_}).out, "--redo"));
  };
  change_record("/code/numerics/base", "0123456789abcdef");
  type_as_status_says(" starts them again");
  change_record("/result/timing", {{"disturbed", true}});
  type_as_status_says(" times them again");
}

TEST_F(Cures, OfFailedRunsStartThemAgain) {
  const Answer failed = run(scratch_.write_spec(behaves("diverge")));
  change_record("/started_at", "long ago");
  EXPECT_EQ(type(failed.err, "failed runs start again with: ").code, 1);
  EXPECT_NE(records().at(0).at("started_at"), "long ago");
}

TEST_F(Cures, OfAnInterruptGoesOnWithTheRunsThatAreLeft) {
  const auto spec = scratch_.write_spec(behaves("linger"), R"(, "matrix": {"seed": [0, 1, 2, 3, 4, 5]})");
  std::thread user([&] {
    for (int i = 0; i < 3000 && records().empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(getpid(), SIGINT);
  });
  const Answer interrupted = run(spec);
  user.join();
  EXPECT_EQ(interrupted.code, 130);
  const Answer rest = type(interrupted.err, "go on with: ");
  EXPECT_EQ(rest.code, 0) << rest.err;
  EXPECT_FALSE(has(rest.err, "6 runs done")) << rest.err;
  EXPECT_EQ(std::ranges::count(records(), Status::ok, &Record::status), 6);
}

TEST_F(Cures, OfWeightsThatAreNotThereMakeTheRunAgain) {
  run(scratch_.write_spec(behaves("ok")));
  const std::filesystem::path folder = records().at(0).file().parent_path();
  change_record("/started_at", "long ago");
  EXPECT_EQ(type(call({"evaluate", folder / kWeightsFile}).err, "make the run again: ", ", and name").code,
            0);
  EXPECT_NE(records().at(0).at("started_at"), "long ago");
}

}  // namespace
}  // namespace bnlab::cures_test
