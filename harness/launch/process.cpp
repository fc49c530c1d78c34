#include "harness/launch/process.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

// The environment as "NAME=value" strings, with `added` replacing what this process has.
std::vector<std::string> merged_environment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (added.count(std::string(text.substr(0, text.find('=')))) == 0) merged.emplace_back(text);
  }
  for (const auto& [name, value] : added) merged.push_back(name + "=" + value);
  return merged;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> all = mapped(strings, [](std::string& s) { return s.data(); });
  all.push_back(nullptr);
  return all;
}

[[noreturn]] void give_up(int report_fd) {
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(report_fd, &error, sizeof error);
  _exit(127);
}

// Runs in the child, between fork and exec: async-signal-safe calls only.
[[noreturn]] void become(const ChildCommand& command, char* const* argv, char* const* environment,
                         pid_t parent, int report_fd) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent)  // the parent died before the request above
    _exit(127);
  setpgid(0, command.group);
  const int input = open("/dev/null", O_RDONLY);
  if (input < 0 || dup2(input, 0) < 0) give_up(report_fd);
  if (!command.log_file.empty()) {
    const int log = open(command.log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0) give_up(report_fd);
  }
  if (close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) != 0)  // a kernel before 5.11
    for (int fd = 3; fd < 1024; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
  for (const int fd : command.inherited_fds) fcntl(fd, F_SETFD, 0);
  execve(argv[0], argv, environment);
  give_up(report_fd);
}

ProcessEnd decode(int status) {
  return WIFSIGNALED(status) ? ProcessEnd{0, WTERMSIG(status)} : ProcessEnd{WEXITSTATUS(status), 0};
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

Process::Process(const ChildCommand& command) {
  std::vector<std::string> arguments = command.argv;
  std::vector<std::string> environment = merged_environment(command.environment);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  int report[2];  // carries errno if exec fails, and nothing (end of file) if it succeeds
  if (pipe2(report, O_CLOEXEC) != 0)
    throw Error(Error::Kind::environment, std::string("cannot make a pipe: ") + strerror(errno));
  const pid_t parent = getpid();
  id_ = fork();
  if (id_ == 0) become(command, argv.data(), envp.data(), parent, report[1]);
  int error = id_ < 0 ? errno : 0;
  close(report[1]);
  if (id_ > 0) {
    setpgid(id_, command.group);  // here too, so that the group exists when the constructor returns
    while (::read(report[0], &error, sizeof error) < 0 && errno == EINTR) {
    }
  }
  close(report[0]);
  if (error != 0) {
    if (id_ > 0) wait();
    const std::string output = command.log_file.empty() ? "" : " with its output in " + command.log_file;
    throw Error(Error::Kind::environment,
                "cannot start " + command.argv[0] + output + ": " + strerror(error));
  }
}

Process::Process(Process&& other) noexcept : id_(std::exchange(other.id_, -1)), end_(other.end_) {}

Process::~Process() {
  if (id_ > 0 && !end_) {
    send(SIGKILL);
    wait();
  }
}

std::optional<ProcessEnd> Process::poll() {
  int status = 0;
  if (!end_ && waitpid(id_, &status, WNOHANG) == id_) end_ = decode(status);
  return end_;
}

ProcessEnd Process::wait() {
  int status = 0;
  while (!end_)
    if (waitpid(id_, &status, 0) == id_)
      end_ = decode(status);
    else if (errno != EINTR)
      end_ = ProcessEnd{127, 0};  // other code has waited for this child, so its status is lost
  return *end_;
}

void Process::send(int signal) {
  if (id_ > 0 && !poll())  // an unreaped child keeps its id, so the signal cannot hit a stranger
    kill(id_, signal);
}

}  // namespace bnlab
