#include "harness/queue/company.hpp"

#include <unistd.h>

#include <cerrno>

#include "harness/error.hpp"
#include "harness/store/claim_holder.hpp"
#include "harness/store/run_folder.hpp"

namespace bnlab {

namespace fs = std::filesystem;

Company::Company(const fs::path& results)
    : file_(results / ".running" / this_process()), text_(this_holder()) {
  constexpr int kMostTries = 10;  // the last of the others may remove the folder between two lines
  for (int tries = 1;; ++tries) {
    std::error_code problem;
    fs::create_directories(file_.parent_path(), problem);
    if (problem == std::errc::permission_denied ||
        (::access(file_.parent_path().c_str(), W_OK) != 0 && errno == EACCES)) {
      throw Error(
          Error::Kind::environment,
          file_.parent_path().string() +
              ": permission denied; users who share a results folder need a group of their own for it, "
              "the group's right to write, and umask 002");
    }
    try {
      write_atomically(file_, text_ + "\n");
      return;
    } catch (const Error&) {
      if (tries == kMostTries) throw;
    }
  }
}

Company::~Company() {
  ::unlink(file_.c_str());
  ::rmdir(file_.parent_path().c_str());  // stays while others are in it
}

int Company::others() const {
  int live = 0;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(file_.parent_path(), none)) {
    const ClaimHolder holder(entry.path());
    if (entry.path() != file_ && holder.is_on_this_machine()) {
      if (holder.has_died()) {
        ::unlink(entry.path().c_str());
      } else {
        ++live;
      }
    }
  }
  return live;
}

}  // namespace bnlab
