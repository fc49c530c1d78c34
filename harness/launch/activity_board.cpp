#include "harness/launch/activity_board.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace bnlab {
namespace {

size_t bytes_of(int ranks) {
  return static_cast<size_t>(ranks) * sizeof(ActivityPage);
}

ActivityPage* mapped_pages(int fd, int ranks, int protection) {
  void* const start = mmap(nullptr, bytes_of(ranks), protection, MAP_SHARED, fd, 0);
  return start == MAP_FAILED ? nullptr : static_cast<ActivityPage*>(start);
}

}  // namespace

ActivityBoard::ActivityBoard(int ranks) : ranks_(ranks), fd_(memfd_create("bnlab-activity", MFD_CLOEXEC)) {
  if (fd_ >= 0 && ftruncate(fd_, static_cast<off_t>(bytes_of(ranks))) == 0)
    pages_ = mapped_pages(fd_, ranks, PROT_READ);
}

ActivityBoard::~ActivityBoard() {
  if (pages_ != nullptr) munmap(const_cast<ActivityPage*>(pages_), bytes_of(ranks_));
  if (fd_ >= 0) close(fd_);
}

std::string ActivityBoard::text() const {
  std::vector<const ActivityPage*> pages;
  for (int rank = 0; pages_ != nullptr && rank < ranks_; ++rank) pages.push_back(pages_ + rank);
  const bool any = std::ranges::any_of(pages, [](const ActivityPage* page) { return page->step > 0; });
  return any ? activities_text(pages) : "";
}

ActivityPage* join_activity_board(int rank) {
  const char* const variable = std::getenv(ActivityBoard::kVariable);
  if (variable == nullptr) return nullptr;
  const int fd = std::atoi(variable);
  ActivityPage* const pages = mapped_pages(fd, rank + 1, PROT_READ | PROT_WRITE);
  close(fd);
  return pages == nullptr ? nullptr : pages + rank;
}

}  // namespace bnlab
