#include "harness/support/resident_memory.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace bnlab {
namespace {

TEST(ResidentMemory, ThePeakIsThatSinceTheLastReset) {
  constexpr size_t kBlocks = 4096, kBytes = 64 << 10;
  constexpr auto kMost = static_cast<int64_t>(kBlocks * kBytes * 9 / 10);
  if (!reset_peak_rss()) GTEST_SKIP() << "this kernel lets no process reset its peak";
  const int64_t before = peak_rss_bytes();
  std::vector<std::unique_ptr<char[]>> blocks;
  for (size_t i = 0; i <= kBlocks; ++i) blocks.push_back(std::make_unique<char[]>(kBytes));
  EXPECT_GE(peak_rss_bytes(), before + kMost);
  blocks.erase(blocks.begin(),
               blocks.end() - 1);  // the last one keeps malloc from giving back the others by itself
  EXPECT_GE(peak_rss_bytes(), before + kMost) << "it is a peak";
  EXPECT_TRUE(reset_peak_rss());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which keep what is freed
  EXPECT_LT(peak_rss_bytes(), before + kMost / 2);
#endif
}

}  // namespace
}  // namespace bnlab
