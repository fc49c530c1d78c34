#include "harness/records/attempts.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/records/temporary_folder.hpp"

namespace bnlab {
namespace {

TEST(Attempts, AreCountedBesideTheRunsFolder) {
  const TemporaryFolder folder;
  const auto run = folder.path() / "run" / "2x1-cpu";
  EXPECT_EQ(attempts_without_end(run), 0);
  std::filesystem::create_directories(run);
  set_attempts(run, 2);
  std::filesystem::remove_all(run);
  EXPECT_EQ(attempts_without_end(run), 2);
  set_attempts(run, 0);
  EXPECT_TRUE(std::filesystem::is_empty(run.parent_path()));
  set_attempts(run, 0);
}

TEST(Attempts, AFileThatIsNoNumberCountsForNone) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / ".2x1-cpu.attempts") << "many";
  EXPECT_EQ(attempts_without_end(folder.path() / "2x1-cpu"), 0);
}

}  // namespace
}  // namespace bnlab
