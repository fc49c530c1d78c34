// What `bnlab doctor` says about the launcher that has started it.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "harness/cli/doctor.hpp"
#include "tests/cli/called.hpp"

namespace bnlab::doctor_test {
namespace {

// All findings as text, with these variables set meanwhile.
std::string found_with(const std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  std::string text;
  for (const Finding& finding : findings_of_launcher()) {
    text += finding.what + ": " + finding.found + " " + finding.problem + "\n";
    EXPECT_EQ(finding.problem.empty(), finding.cure.empty()) << finding.problem;
  }
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  return text;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Doctor, SaysWhichBuildItIsAsVersionDoes) {  // with "modified", where its sources were
  const test::Answer answer = test::call({"doctor", "--results", "/tmp"});
  EXPECT_TRUE(has(answer.out, program_version())) << answer.out << answer.err;
}

TEST(LauncherFindings, NoLauncher) {
  EXPECT_TRUE(has(found_with({}), "bnlab starts the ranks itself"));
}

TEST(LauncherFindings, TellWhatARunWouldDoAndWhy) {
  const std::string text = found_with({{"RANK", "1"},
                                       {"WORLD_SIZE", "4"},
                                       {"MASTER_ADDR", "127.0.0.1"},
                                       {"MASTER_PORT", "29500"},
                                       {"OMP_NUM_THREADS", "3"},
                                       {"OMP_WAIT_POLICY", "PASSIVE"}});
  EXPECT_TRUE(has(text, "RANK=1, WORLD_SIZE=4")) << text;
  EXPECT_TRUE(has(text, "at 127.0.0.1:29500, rank 0 serves the store")) << text;
  EXPECT_TRUE(has(text, "3 per rank (OMP_NUM_THREADS=3)")) << text;
  EXPECT_TRUE(has(text, "to set MALLOC_ARENA_MAX")) << text;
}

TEST(LauncherFindings, NameASettingThatHasAnotherValue) {
  const std::string text = found_with({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"OMP_WAIT_POLICY", "ACTIVE"}});
  EXPECT_TRUE(has(text, ", OMP_WAIT_POLICY")) << text;
}

TEST(LauncherFindings, NameAnAddressThatOtherHostsCannotReach) {
  const std::string text = found_with({{"RANK", "0"},
                                       {"WORLD_SIZE", "4"},
                                       {"LOCAL_WORLD_SIZE", "2"},
                                       {"MASTER_ADDR", "127.0.1.1"},
                                       {"MASTER_PORT", "1"}});
  EXPECT_TRUE(has(text, "only 2 of 4 ranks are on this host")) << text;
}

TEST(LauncherFindings, NameWhatIsMissing) {
  EXPECT_TRUE(has(found_with({{"RANK", "0"}, {"WORLD_SIZE", "2"}}), "MASTER_ADDR"));
}

}  // namespace
}  // namespace bnlab::doctor_test
