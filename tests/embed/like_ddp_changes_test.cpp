// DataParallel beside DistributedDataParallel where not all is there: parameters that a pass does not reach,
// modules that change, uneven batches, passes that fail.
#include <sstream>

#include "like_ddp.hpp"

namespace bnlab::like_ddp_test {
namespace {

// A pass that fails on one rank

// Steps, in the second of which rank 1 throws between forward and backward and goes on, a step ahead: what the
// first that failed has said, and how many have failed.
std::pair<std::string, int> failures(const Ranks& ranks, const BatchNormOptions& options) {
  nn::Sequential net(BatchNorm(BatchNormOptions(options).ranks(ranks).name("first")),
                     BatchNorm(BatchNormOptions(options).ranks(ranks).name("second")));
  net->to(at::kDouble);
  DataParallel parallel(*net, ranks);
  std::pair<std::string, int> failed{"", 0};
  for (uint64_t step = 0; step < (ranks.rank() == 0 ? 5 : 6); ++step) {
    const std::string told = refusal([&] {
      const at::Tensor loss = net->forward(batch(4, step)).square().mean();
      if (step == 1 && ranks.rank() == 1) {
        throw std::runtime_error("a program's own");
      }
      parallel.backward(loss, 4);
    });
    failed.first = failed.first.empty() ? told : failed.first;
    failed.second += told.empty() ? 0 : 1;
  }
  return failed;
}

TEST(LikeDdp, AForwardPassThatOneRankDropsCostsOneStep) {
  for (const char* strategy : {"per_tower", "averaged", "sync", R"({"name": "group_norm", "groups": 3})"}) {
    for (const Counting counting : {Counting::every_forward, Counting::first_before_backward}) {
      const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
        return failures(ranks, BatchNormOptions(kChannels).strategy(strategy).counting(counting));
      });
      EXPECT_NE(first.first.find("is at DataParallel::backward with rows"), std::string::npos) << first.first;
      EXPECT_EQ(first.second, 1) << strategy;
      EXPECT_EQ(second.first, "a program's own");
      EXPECT_EQ(second.second, 2) << strategy;
    }
  }
}

}  // namespace
}  // namespace bnlab::like_ddp_test
