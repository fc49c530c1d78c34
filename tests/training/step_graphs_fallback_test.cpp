// Steps that cannot be recorded are made by themselves.
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/error.hpp"
#include "tests/training/replayed_training.hpp"

namespace bnlab {
namespace {

// Books something in each half that it records, and may find then that it could not be recorded.
class Failing : public DoneAgain {
 public:
  Failing(Ledger& ledger, std::optional<Half> fails, int& alive)
      : DoneAgain(ledger), ledger_(ledger), fails_(fails), alive_(alive) {
    ++alive_;
  }
  ~Failing() override { --alive_; }

  void record(Half half, const std::function<void()>& work) override {
    DoneAgain::record(half, work);
    ledger_.add("all_gather", Purpose::statistics, 1, 8);
    if (half == fails_) {
      throw std::runtime_error("not recorded\nat all");
    }
  }

 private:
  Ledger& ledger_;
  std::optional<Half> fails_;
  int& alive_;
};

// Without statistics, so that a half done in vain leaves nothing.
TEST(StepGraphsFallback, AStepThatOneRankCannotRecordIsMadeByItselfOnAll) {
  for (const Half half : {Half::forward, Half::backward}) {
    on_thread_ranks(2, at::kCPU, [half](World& world) {
      const std::optional<Half> fails = world.rank() == 1 ? std::optional(half) : std::nullopt;
      int tried = 0, alive = 0;
      Training by_itself(spec_of("group_norm"), world, nullptr);
      Training training(spec_of("group_norm"), world, [&] {
        ++tried;
        return std::make_unique<Failing>(world.ledger(), fails, alive);
      });
      for (int64_t step = 0; step < 12; ++step) {
        by_itself.step(step);
        world.ledger().clear();
        training.step(step);
        EXPECT_EQ(world.ledger().of(Purpose::gradients).collectives, 1) << "step " << step;
        EXPECT_EQ(world.ledger().of(Purpose::statistics).collectives, 0) << "step " << step;
      }
      expect_equal(training.state(), by_itself.state());
      EXPECT_EQ(tried, 1);
      EXPECT_EQ(alive, 0);
      EXPECT_EQ(training.graphs().summary(), (Json{{"replayed_steps", 0}, {"why_not", "not recorded"}}));
    });
  }
}

TEST(StepGraphsFallback, AfterARecordingThatCannotBeBegunNoneIsTriedAgain) {
  on_thread_ranks(2, at::kCPU, [](World& world) {
    int tried = 0;
    Training by_itself(spec_of("sync"), world, nullptr);
    Training training(spec_of("sync"), world, [&]() -> std::unique_ptr<GraphRecorder> {
      if (++tried == 2 && world.rank() == 0) {
        throw Error(Error::Kind::environment, "no memory");
      }
      return std::make_unique<DoneAgain>(world.ledger());
    });
    for (int64_t step = 0; step < 16; ++step) {
      by_itself.step(step);
      training.step(step);
      if (step == 6) {
        training.graphs().invalidate();  // recorded in step 5; the next is tried in step 10
      }
    }
    expect_equal(training.state(), by_itself.state());
    EXPECT_EQ(tried, 2);
    EXPECT_EQ(training.graphs().summary(), (Json{{"replayed_steps", 2}, {"why_not", "no memory"}}));
  });
}

}  // namespace
}  // namespace bnlab
