// A communicator whose process group is made by its first collective.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/communicator/c10d_parts.hpp"
#include "harness/error.hpp"

namespace bnlab {
namespace {

class DoneAtOnce : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds) override { return true; }
};

// Rank 1 of two, which sends nothing.
class Silent : public c10d::Backend {
 public:
  Silent() : Backend(1, 2) {}
  const std::string getBackendName() const override { return "silent"; }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>&, const c10d::BroadcastOptions&) override {
    return c10::make_intrusive<DoneAtOnce>();
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return c10::make_intrusive<DoneAtOnce>();
  }
};

TEST(LateCommunicator, MakesItsGroupOnceAndOnlyWhereItIsUsed) {
  int made = 0;
  const auto make = [&]() -> c10::intrusive_ptr<c10d::Backend> {
    ++made;
    return c10::make_intrusive<Silent>();
  };
  Ledger ledger;
  const auto communicator = make_late_communicator(1, 2, make, ledger, "host");
  EXPECT_EQ(communicator->rank(), 1);
  EXPECT_EQ(communicator->size(), 2);
  EXPECT_EQ(made, 0);
  at::Tensor t = at::ones({3}, at::kDouble);
  communicator->broadcast(t, 1, Purpose::control);
  communicator->all_reduce(t, Purpose::control);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(ledger.of(Purpose::control).collectives, 2);
}

TEST(LateCommunicator, AGroupThatCannotBeMadeIsAnErrorOfTheCollective) {
  Ledger ledger;
  const auto communicator = make_late_communicator(
      0, 2, []() -> c10::intrusive_ptr<c10d::Backend> { throw std::runtime_error("nobody is there"); },
      ledger, "host");
  try {
    communicator->barrier();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::communication);
    EXPECT_NE(std::string(error.what())
                  .find("group host) failed; another rank may have died or be stuck: nobody is "
                        "there"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace bnlab
