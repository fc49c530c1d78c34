#include "harness/store/run_folder.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "harness/store/this_process.hpp"
#include "harness/support/error.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

TEST(RunFolder, NamesRunAndPlacement) {
  EXPECT_EQ(run_folder("results", "small", "sync-8x2-seed0-1f", {2, 4, Device::cpu}),
            std::filesystem::path("results/small/sync-8x2-seed0-1f/2x4-cpu"));
}

TEST(RunFolder, PlacementsOnSeveralMachinesAreNotTheSame) {
  Placement placement{8, 1, Device::cuda};
  EXPECT_EQ(placement.name(), "8x1-cuda");
  placement.nodes = 2;
  EXPECT_EQ(placement.name(), "8x1-cuda-2nodes");
  EXPECT_EQ((Placement{.ranks = 2, .device = Device::cpu, .exchange = Exchange::sockets, .nodes = 2}).name(),
            "2x1-cpu-2nodes-sockets");
}

TEST(WriteAtomically, LeavesTheTextAndNothingElse) {
  const TemporaryFolder folder;
  write_json(folder.path() / "a.json", {{"b", 1}, {"a", 2}});
  write_json(folder.path() / "a.json", {{"b", 3}});
  EXPECT_EQ(read_json(folder.path() / "a.json"), Json({{"b", 3}}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

// A writer killed at any moment leaves the old file or the new one, whole.
TEST(WriteAtomically, IsWholeWheneverTheWriterIsKilled) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "record.json";
  write_json(file, {{"text", std::string(1 << 20, 'a')}});
  for (int attempt = 0; attempt < 20; ++attempt) {
    const pid_t writer = ::fork();
    ASSERT_GE(writer, 0);
    if (writer == 0)
      for (int i = 0;; ++i)
        write_json(file, {{"text", std::string(1 << 20, static_cast<char>('a' + i % 26))}});
    ::usleep(static_cast<useconds_t>(2000 + 1700 * attempt));
    ::kill(writer, SIGKILL);
    ::waitpid(writer, nullptr, 0);
    ASSERT_EQ(read_json(file).at("text").get<std::string>().size(), size_t{1} << 20) << "attempt " << attempt;
  }
}

TEST(MakeFolder, LeavesRightsToTheUsersMask) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(002);
  make_folder(folder.path() / "checkpoints");
  ::umask(before);
  using std::filesystem::perms;
  EXPECT_NE(std::filesystem::status(folder.path() / "checkpoints").permissions() & perms::group_write,
            perms::none);
}

TEST(WriteAtomically, MendsTextThatIsNotUtf8) {
  const TemporaryFolder folder;
  write_json(folder.path() / "a.json", {{"log", "bad \xff byte"}});
  EXPECT_EQ(read_json(folder.path() / "a.json").at("log"), "bad \xef\xbf\xbd byte");
}

TEST(WriteAtomically, SaysWhichFileCannotBeWritten) {
  const TemporaryFolder folder;
  try {
    write_json(folder.path() / "missing" / "a.json", {});
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::environment);
    EXPECT_NE(std::string(error.what()).find("missing"), std::string::npos);
  }
}

TEST(WriteAtomically, WritesNothingThroughALink) {
  const TemporaryFolder folder;
  const std::filesystem::path theirs = folder.path() / "theirs", file = folder.path() / "a.json";
  std::ofstream(theirs) << "precious";
  std::filesystem::create_symlink(theirs, folder.path() / (".a.json." + this_process() + ".tmp"));
  write_atomically(file, "new");
  EXPECT_EQ(read_text(theirs), "precious");
  EXPECT_EQ(read_text(file), "new");
  EXPECT_FALSE(std::filesystem::is_symlink(file));
}

TEST(ReadJson, NamesTheFileThatIsMissingOrDamaged) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() / "half.json") << "{\"a\": ";
  for (const char* name : {"half.json", "absent.json"}) {
    try {
      read_json(folder.path() / name);
      FAIL() << "expected an Error for " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::data);
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos);
    }
  }
}

TEST(ReadText, RefusesWhatIsNoOrdinaryFileAndWhatIsTooLarge) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0666), 0);
  std::ofstream(folder.path() / "sparse") << "";
  std::filesystem::resize_file(folder.path() / "sparse", uintmax_t{3} << 40);
  for (const char* name : {"pipe", "sparse", "."}) {
    try {
      read_json(folder.path() / name);
      FAIL() << "expected an Error for " << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find((folder.path() / name).string()), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace bnlab
