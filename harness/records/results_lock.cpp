#include "harness/records/results_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "harness/error.hpp"
#include "harness/records/record.hpp"

namespace bnlab {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

// Who holds the lock, from its file. The holder writes it just after taking the lock, so that for a moment
// there may be nothing to read.
std::string holder(const std::filesystem::path& file) {
  try {
    const Json text = read_json(file);
    return "process " + std::to_string(text.at("pid").get<long>()) + " on " +
           text.at("host").get<std::string>() + " since " + text.at("since").get<std::string>();
  } catch (const std::exception&) {
    return "another process";
  }
}

void write_holder(int descriptor) {
  const std::string text =
      Json{{"pid", static_cast<long>(::getpid())}, {"host", host_name()}, {"since", now_utc()}}.dump() + "\n";
  // The text is a courtesy to the next process; the lock holds without it.
  if (::ftruncate(descriptor, 0) != 0) return;
  [[maybe_unused]] const ssize_t written = ::pwrite(descriptor, text.data(), text.size(), 0);
}

}  // namespace

ResultsLock::ResultsLock(const std::filesystem::path& results) {
  const std::filesystem::path file = results / ".lock";
  std::error_code problem;
  std::filesystem::create_directories(results, problem);
  descriptor_ = problem ? -1 : ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor_ < 0) {
    const std::string reason = problem          ? problem.message()
                               : errno == ELOOP ? "its .lock is a symbolic link; remove it"
                                                : std::strerror(errno);
    throw Error(Error::Kind::environment,
                "cannot write to the results folder " + results.string() + ": " + reason);
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    ::close(descriptor_);
    if (reason != EWOULDBLOCK) {
      throw Error(Error::Kind::environment, "cannot lock " + file.string() + ": " + std::strerror(reason));
    }
    throw Error(Error::Kind::environment, "the results folder " + results.string() + " is in use by " +
                                              holder(file) +
                                              "; wait for it to end, or name another folder with --results");
  }
  write_holder(descriptor_);
}

ResultsLock::~ResultsLock() {
  ::close(descriptor_);
}

}  // namespace bnlab
