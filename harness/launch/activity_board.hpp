// The pages on which the ranks of a run write what they are doing (harness/support/activity.hpp), in memory
// that the launcher shares with them. Nothing is left behind, however they end.
#pragma once

#include <string>
#include <vector>

#include "harness/support/activity.hpp"

namespace bnlab {

class ActivityBoard {
 public:
  static constexpr const char* kVariable =
      "BNLAB_ACTIVITY_FD";  // tells a rank the descriptor that it has inherited

  explicit ActivityBoard(int ranks);  // without memory it stays empty, and says nothing
  ~ActivityBoard();
  ActivityBoard(const ActivityBoard&) = delete;
  ActivityBoard& operator=(const ActivityBoard&) = delete;

  int fd() const { return fd_; }  // -1: there is none
  // activities_text() of all ranks; empty where no rank has begun to train.
  std::string text() const;

 private:
  int ranks_;
  int fd_ = -1;
  const ActivityPage* pages_ = nullptr;
};

// The page of a rank whose launcher has such a board, for Activity::keep_on; null where it has none. It stays
// for the life of the process.
ActivityPage* join_activity_board(int rank);

}  // namespace bnlab
