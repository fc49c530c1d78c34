#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "harness/support/json.hpp"
#include "tests/cli/on_results.hpp"

namespace bnlab {
namespace {

using test::Answer;
using test::has;
using ReportCommand = test::OnResults;

TEST_F(ReportCommand, HasThreeFormatsAndGoesIntoAFile) {
  const auto spec = scratch_.write_spec(test::behaves("ok"));
  call_with_results({"run", spec});
  EXPECT_TRUE(has(call_with_results({"report", spec}).out, "left"));
  EXPECT_TRUE(has(call_with_results({"report", spec, "--format", "markdown"}).out, "| "));
  EXPECT_TRUE(Json::parse(call_with_results({"report", spec, "--format", "json"}).out).is_object());
  const std::string file = scratch_ / "page.md", table = "<!-- table:fake -->\nold\n<!-- end -->\n";
  std::ofstream(file) << table;
  const Answer refused = call_with_results({"report", spec, "--into", file});
  EXPECT_TRUE(has(refused.err, file + ": expected a file with the lines \"<!-- summary:fake -->\" and "
                                      "\"<!-- end -->\" around the place for the table\n"))
      << refused.err;
  EXPECT_EQ(read_text(file), table);
  std::ofstream(file) << "# Page\n<!-- summary:fake -->\nold\n<!-- end -->\n" << table;
  EXPECT_EQ(call_with_results({"report", spec, "--into", file}).code, 0);
  const std::string page = read_text(file);
  EXPECT_TRUE(has(page, "<!-- summary:fake -->\n| strategy |") && has(page, "left") && !has(page, "old"))
      << page;
  EXPECT_EQ(call_with_results({"report", spec, "--into", file, "--format", "text"}).code, exit_code::kUsage);
}

TEST_F(ReportCommand, OfNothingSaysWhatStartsTheRuns) {
  const auto spec = scratch_.write_spec(test::behaves("ok"));
  const Answer answer = call_with_results({"report", spec, "steps=3"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.out, "no runs yet; start them: bnlab run " + spec + " steps=3 --results " +
                            (scratch_ / "results") + "\n");
  EXPECT_EQ(Json::parse(call_with_results({"report", spec, "--format", "json"}).out).at("experiment"),
            "fake");
}

TEST_F(ReportCommand, OfSeveralSpecsGoesIntoAFolder) {
  const auto spec = scratch_.write_spec(test::behaves("ok"));
  const std::string other = scratch_ / "other.json", folder = scratch_ / "pages";
  std::filesystem::copy_file(spec, other);
  for (const std::string& each : {spec, other}) call_with_results({"run", each});
  std::filesystem::create_directories(folder + "/fake");
  std::filesystem::create_directories(folder + "/other");
  for (const std::string name : {"fake", "other"}) {
    const std::string page =
        "<!-- summary:" + name + " -->\n<!-- end -->\n<!-- table:" + name + " -->\n<!-- end -->\n";
    std::ofstream(folder + "/" + name + "/README.md") << page;
  }
  const Answer tables = call_with_results({"report", spec, other, "--into", folder});
  EXPECT_EQ(tables.code, 0) << tables.err;
  EXPECT_EQ(call_with_results({"report", spec, other, "--out", folder, "--format", "json"}).code, 0);
  for (const std::string name : {"fake", "other"}) {
    EXPECT_TRUE(has(read_text(folder + "/" + name + "/README.md"), "| strategy |")) << name;
    EXPECT_EQ(read_json(folder + "/" + name + ".json").at("experiment"), name);
  }
  EXPECT_TRUE(
      has(call_with_results({"report", spec, other, "--format", "json"}).err, "expected --out FOLDER"));
  const std::string both = call_with_results({"report", spec, other}).out;
  EXPECT_EQ(both, call_with_results({"report", spec}).out + "\n" + call_with_results({"report", other}).out);
}

}  // namespace
}  // namespace bnlab
