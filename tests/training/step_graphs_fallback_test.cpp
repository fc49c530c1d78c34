// Steps that cannot be recorded are made by themselves.
#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/support/error.hpp"
#include "tests/training/replayed_training.hpp"

namespace bnlab {
namespace {

// Books something in each part that it records, and may find then that it could not be recorded.
class Failing : public DoneAgain {
 public:
  Failing(Ledger& ledger, std::optional<StepPart> fails, int& alive)
      : DoneAgain(ledger), ledger_(ledger), fails_(fails), alive_(alive) {
    ++alive_;
  }
  ~Failing() override { --alive_; }

  void record(StepPart part, const std::function<void()>& work) override {
    DoneAgain::record(part, work);
    ledger_.add("all_gather", Purpose::statistics, 1, 8);
    if (part == fails_) throw std::runtime_error("not recorded\nat all");
  }

 private:
  Ledger& ledger_;
  std::optional<StepPart> fails_;
  int& alive_;
};

// Without statistics, so that a part done in vain leaves nothing.
TEST(StepGraphsFallback, AStepThatOneRankCannotRecordIsMadeByItselfOnAll) {
  for (const StepPart part : {StepPart::forward, StepPart::backward}) {
    on_thread_ranks(2, at::kCPU, [part](World& world) {
      const std::optional<StepPart> fails = world.rank() == 1 ? std::optional(part) : std::nullopt;
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
    const RunSpec spec = spec_of("sync", {{"steps", 16}});
    Training by_itself(spec, world, nullptr);
    Training training(spec, world, [&]() -> std::unique_ptr<GraphRecorder> {
      if (++tried == 3 && world.rank() == 0) throw Error(Error::Kind::environment, "no memory");
      return std::make_unique<DoneAgain>(world.ledger());
    });
    for (int64_t step = 0; step < 16; ++step) {
      by_itself.step(step);
      training.step(step);
      if (step == 6) training.graphs().invalidate();  // recorded in step 5; the next is tried in step 10
    }
    expect_equal(training.state(), by_itself.state());
    EXPECT_EQ(tried, 3);  // the passes and the update of step 5, and the passes of step 10
    EXPECT_EQ(training.graphs().summary(), (Json{{"replayed_steps", 2}, {"why_not", "no memory"}}));
  });
}

TEST(StepGraphsFallback, AnUpdateThatOneRankCannotRecordIsMadeByItselfThere) {
  on_thread_ranks(2, at::kCPU, [](World& world) {
    int made = 0;
    Training by_itself(spec_of("sync"), world, nullptr);
    Training training(spec_of("sync"), world, [&]() -> std::unique_ptr<GraphRecorder> {
      if (++made == 2 && world.rank() == 1) throw Error(Error::Kind::environment, "no memory");
      return std::make_unique<DoneAgain>(world.ledger());
    });
    for (int64_t step = 0; step < 12; ++step) {
      by_itself.step(step);
      training.step(step);
    }
    expect_equal(training.state(), by_itself.state());
    Json expected = {{"replayed_steps", 7}};
    if (world.rank() == 1) expected["why_no_updates"] = "no memory";
    EXPECT_EQ(training.graphs().summary(), expected);
  });
}

}  // namespace
}  // namespace bnlab
