#include "harness/records/results_lock.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "harness/error.hpp"
#include "tests/records/temporary_folder.hpp"

namespace bnlab {
namespace {

// A child process that holds the lock until it is killed.
class Holder {
 public:
  explicit Holder(const std::filesystem::path& results) {
    int ready[2];
    if (::pipe(ready) != 0) return;
    process_ = ::fork();
    if (process_ == 0) {
      const ResultsLock lock(results);
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char byte = 0;
    ready_ = ::read(ready[0], &byte, 1) == 1;
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Holder() { end(); }
  void end() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
    process_ = -1;
  }
  bool ready() const { return ready_; }
  pid_t process() const { return process_; }

 private:
  pid_t process_ = -1;
  bool ready_ = false;
};

std::string refusal(const std::filesystem::path& results) {
  try {
    const ResultsLock lock(results);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::environment);
    return error.what();
  }
  return "";
}

TEST(ResultsLock, WritesNothingBehindALink) {
  const TemporaryFolder folder;
  const auto precious = folder.path() / "precious";
  std::ofstream(precious) << "mine";
  std::filesystem::create_symlink(precious, folder.path() / ".lock");
  EXPECT_NE(refusal(folder.path()).find("symbolic link"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(precious), 4U);
}

TEST(ResultsLock, TellsASecondProcessWhoHoldsItAndEndsWithTheHolder) {
  const TemporaryFolder folder;
  Holder holder(folder.path() / "results");
  ASSERT_TRUE(holder.ready());
  const std::string message = refusal(folder.path() / "results");
  EXPECT_NE(message.find("process " + std::to_string(holder.process()) + " on "), std::string::npos)
      << message;
  EXPECT_NE(message.find(" since 2"), std::string::npos) << message;
  holder.end();
  EXPECT_EQ(refusal(folder.path() / "results"), "");
}

TEST(ResultsLock, IsReleasedWhenItGoesOutOfScope) {
  const TemporaryFolder folder;
  EXPECT_EQ(refusal(folder.path()), "");
  EXPECT_EQ(refusal(folder.path()), "");
}

// Ranks started by the holder must not keep the lock when it dies.
TEST(ResultsLock, IsNotInheritedByAProgramThatTheHolderStarts) {
  const TemporaryFolder folder;
  std::optional<ResultsLock> lock(folder.path());
  const pid_t sleeper = ::fork();
  if (sleeper == 0) {
    ::execlp("sleep", "sleep", "100", nullptr);
    ::_exit(1);
  }
  ASSERT_GT(sleeper, 0);
  lock.reset();
  std::string message = refusal(folder.path());
  for (int i = 0; i < 200 && !message.empty(); ++i) {  // until the child has reached its exec
    ::usleep(10000);
    message = refusal(folder.path());
  }
  EXPECT_EQ(message, "");
  ::kill(sleeper, SIGKILL);
  ::waitpid(sleeper, nullptr, 0);
}

}  // namespace
}  // namespace bnlab
