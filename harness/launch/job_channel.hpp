// What the launcher and a rank that stays between runs say to each other: the folder of each further run on
// the way there, and on the way back that the run has ended.
#pragma once

#include <optional>
#include <string>

namespace bnlab {

// One end of it. A message is lost where the other end has gone.
class JobChannel {
 public:
  JobChannel() = default;  // without another end
  explicit JobChannel(int fd) : fd_(fd) {}
  JobChannel(JobChannel&& other) noexcept;
  JobChannel& operator=(JobChannel&& other) noexcept;
  ~JobChannel() { close(); }

  // Both ends; a child inherits only what its ChildCommand names. Throws Error (environment) if there are
  // none.
  struct Ends;
  static Ends make();
  // The end that the launcher has named to this rank, if it did.
  static JobChannel from_environment();

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void close();

  void send(const std::string& message) const;
  std::string wait() const;                 // the next message; empty once the other end has gone
  std::optional<std::string> look() const;  // the same, or nothing while there is none

 private:
  int fd_ = -1;
};

struct JobChannel::Ends {
  JobChannel launcher, rank;
};

inline constexpr const char* kJobChannel = "BNLAB_JOBS_FD";  // the variable that names the rank's end

}  // namespace bnlab
