#include "harness/launch/process.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "harness/support/error.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

std::string contents(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

ChildCommand shell(const std::string& script, const std::string& log) {
  ChildCommand command;
  command.argv = {"/bin/sh", "-c", script};
  command.log_file = log;
  return command;
}

TEST(Process, BothOutputsGoToTheLogAndTheExitStatusComesBack) {
  const test::Scratch scratch;
  Process process(shell("echo out; echo err >&2; exit 3", scratch / "log"));
  const ProcessEnd end = process.wait();
  EXPECT_EQ(end.code, 3);
  EXPECT_EQ(end.signal, 0);
  EXPECT_EQ(contents(scratch / "log"), "out\nerr\n");
}

TEST(Process, ArgumentsAreNotReadByAShell) {
  const test::Scratch scratch;
  ChildCommand command;
  command.argv = {"/bin/echo", "$HOME; exit 1", "two  spaces"};
  command.log_file = scratch / "log";
  EXPECT_EQ(Process(command).wait().code, 0);
  EXPECT_EQ(contents(scratch / "log"), "$HOME; exit 1 two  spaces\n");
}

TEST(Process, GivenVariablesReplaceInheritedOnes) {
  const test::Scratch scratch;
  setenv("BNLAB_TEST_VARIABLE", "inherited", 1);
  ChildCommand command = shell("echo $BNLAB_TEST_VARIABLE", scratch / "log");
  command.environment["BNLAB_TEST_VARIABLE"] = "given";
  Process(command).wait();
  unsetenv("BNLAB_TEST_VARIABLE");
  EXPECT_EQ(contents(scratch / "log"), "given\n");
}

TEST(Process, OnlyChosenDescriptorsAreInherited) {
  const test::Scratch scratch;
  const int kept = dup(STDERR_FILENO);
  const int hidden = dup(STDERR_FILENO);
  ChildCommand command =
      shell("for fd in \"$@\"; do test -e /proc/self/fd/$fd && echo $fd; done", scratch / "log");
  command.argv.insert(command.argv.end(), {"sh", std::to_string(kept), std::to_string(hidden)});
  command.inherited_fds = {kept};
  Process(command).wait();
  close(kept);
  close(hidden);
  EXPECT_EQ(contents(scratch / "log"), std::to_string(kept) + "\n");
}

TEST(Process, NamesTheSignalThatEndedIt) {
  const test::Scratch scratch;
  Process process(shell("kill -9 $$", scratch / "log"));
  EXPECT_EQ(signal_name(process.wait().signal), "SIGKILL");
  EXPECT_EQ(signal_name(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(signal_name(1000), "signal 1000");
}

TEST(Process, AMissingProgramIsAnErrorThatNamesIt) {
  ChildCommand command;
  command.argv = {"/no/such/program"};
  try {
    Process process(command);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::environment);
    EXPECT_NE(std::string(error.what()).find("/no/such/program: No such file"), std::string::npos)
        << error.what();
  }
}

TEST(Process, RunsUntilItIsSignalled) {
  const test::Scratch scratch;
  Process process(shell("exec sleep 1000", scratch / "log"));
  EXPECT_FALSE(process.poll());
  EXPECT_EQ(getpgid(process.id()), process.id());
  process.send(SIGTERM);
  EXPECT_EQ(process.wait().signal, SIGTERM);
  process.send(SIGTERM);  // nobody is left to receive it
}

TEST(Process, DoesNotOutliveItsObject) {
  const test::Scratch scratch;
  pid_t id = 0;
  {
    const Process process(shell("exec sleep 1000", scratch / "log"));
    id = process.id();
  }
  EXPECT_EQ(kill(id, 0), -1);
}

TEST(Process, JoinsTheGroupOfAnother) {
  const test::Scratch scratch;
  Process leader(shell("exec sleep 1000", scratch / "log"));
  ChildCommand command = shell("exec sleep 1000", scratch / "log");
  command.group = leader.id();
  Process member(command);
  EXPECT_EQ(getpgid(member.id()), leader.id());
  kill(-leader.id(), SIGKILL);
  EXPECT_EQ(leader.wait().signal, SIGKILL);
  EXPECT_EQ(member.wait().signal, SIGKILL);
}

}  // namespace
}  // namespace bnlab
