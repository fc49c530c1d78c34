// Child processes: fork and exec of an argument vector (no shell), in a process group of their own, with
// their output in a file. A child never outlives its parent (PR_SET_PDEATHSIG) nor its Process object.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace bnlab {

struct ChildCommand {
  std::vector<std::string> argv;                   // argv[0] is the path of the program
  std::map<std::string, std::string> environment;  // added to this process's, or replacing its entries
  std::string log_file;                            // standard output and error, appended; empty: inherited
  std::vector<int> inherited_fds;                  // beside 0, 1 and 2; every other one is closed
  pid_t group = 0;                                 // process group to join; 0: lead a new one
};

// How a process ended.
struct ProcessEnd {
  int code = 0;    // exit status, if `signal` is 0
  int signal = 0;  // the signal that ended it, or 0
};

// "SIGKILL", or "signal 42" where the number has no name.
std::string signal_name(int signal);

class Process {
 public:
  // Throws Error (environment) if the program cannot be started. The thread that starts a child must
  // live as long as the child: the kernel kills the child when that thread ends.
  explicit Process(const ChildCommand& command);
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();  // kills with SIGKILL and reaps, if it still runs

  pid_t id() const { return id_; }
  std::optional<ProcessEnd> poll();  // how it ended, or nothing while it runs
  ProcessEnd wait();
  void send(int signal);  // nothing happens if it has ended

 private:
  pid_t id_ = -1;
  std::optional<ProcessEnd> end_;
};

}  // namespace bnlab
