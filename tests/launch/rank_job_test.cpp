#include "harness/launch/rank_job.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/store/run_folder.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

TEST(RankJob, AReportThatIsNotWholeIsNone) {
  const test::Scratch scratch;
  const std::string folder = scratch / "", file = report_file(folder, 0);
  write_json(file, {{"status", "ok"},
                    {"message", ""},
                    {"lost_contact", false},
                    {"result", {{"steps", 3}}},
                    {"notes", {"one"}},
                    {"lost_work", Json::array()}});
  const std::string whole = read_text(file);
  ASSERT_TRUE(read_report(folder, 0));
  for (size_t length = 0; length + 1 < whole.size(); ++length) {
    std::ofstream(file) << whole.substr(0, length);
    EXPECT_FALSE(read_report(folder, 0)) << "cut at byte " << length;
  }
  std::ofstream(file) << R"({"status": 3})";
  EXPECT_FALSE(read_report(folder, 0));
}

}  // namespace
}  // namespace bnlab
