// Keeps a second writing process off a results folder by an flock on RESULTS/.lock, whose text says who holds it. The
// kernel releases the lock whenever and however its holder dies.
#pragma once

#include <filesystem>

namespace bnlab {

class ResultsLock {
 public:
  // Makes the folder if needed and takes the lock, or throws Error (environment) that names the holder's
  // process id, host and start time. Never waits. Only processes that write results need it.
  explicit ResultsLock(const std::filesystem::path& results);
  ~ResultsLock();
  ResultsLock(const ResultsLock&) = delete;
  ResultsLock& operator=(const ResultsLock&) = delete;

 private:
  int descriptor_ = -1;  // closed on exec, so that ranks started from here do not keep it
};

}  // namespace bnlab
