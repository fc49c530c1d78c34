// A communicator whose process group is made by its first collective.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/communicator/world_parts.hpp"
#include "harness/support/error.hpp"

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

TEST(LazyCommunicator, MakesItsGroupOnceAndOnlyWhereItIsUsed) {
  int made = 0;
  const auto make = [&]() -> c10::intrusive_ptr<c10d::Backend> {
    ++made;
    return c10::make_intrusive<Silent>();
  };
  Ledger ledger;
  const auto communicator = make_lazy_communicator(1, 2, make, ledger, "host");
  EXPECT_EQ(communicator->rank(), 1);
  EXPECT_EQ(communicator->size(), 2);
  EXPECT_EQ(made, 0);
  at::Tensor t = at::ones({3}, at::kDouble);
  communicator->broadcast(t, 1, Purpose::control);
  communicator->all_reduce(t, Purpose::control);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(ledger.of(Purpose::control).collectives, 2);
}

TEST(LazyCommunicator, AGroupThatCannotBeMadeIsAnErrorOfTheCollective) {
  Ledger ledger;
  const auto communicator = make_lazy_communicator(
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

// As NCCL does where a call is blocking: its work is in the order of the stream, and nobody has to wait.
class GivesNoWork : public c10d::Backend {
 public:
  using Works = std::vector<std::vector<at::Tensor>>;
  using Work = c10::intrusive_ptr<c10d::Work>;

  GivesNoWork() : Backend(0, 2) {}
  const std::string getBackendName() const override { return "gives no work"; }
  Work broadcast(std::vector<at::Tensor>&, const c10d::BroadcastOptions& o) override { return no(o.asyncOp); }
  Work allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions& o) override { return no(o.asyncOp); }
  Work reduce(std::vector<at::Tensor>&, const c10d::ReduceOptions& o) override { return no(o.asyncOp); }
  Work gather(Works&, std::vector<at::Tensor>&, const c10d::GatherOptions& o) override {
    return no(o.asyncOp);
  }
  Work _allgather_base(at::Tensor&, at::Tensor&, const c10d::AllgatherOptions& o) override {
    return no(o.asyncOp);
  }
  Work alltoall_base(at::Tensor&, at::Tensor&, std::vector<int64_t>&, std::vector<int64_t>&,
                     const c10d::AllToAllOptions& o) override {
    return no(o.asyncOp);
  }

 private:
  static Work no(bool async) { return async ? Work(c10::make_intrusive<DoneAtOnce>()) : Work(); }
};

TEST(C10dCommunicator, ABlockingCollectiveMayGiveNoWork) {
  Ledger ledger;
  const auto ranks = make_c10d_communicator(c10::make_intrusive<GivesNoWork>(), ledger, "statistics");
  at::Tensor t = at::ones({2}, at::kDouble);
  ranks->all_gather(t, Purpose::control);
  ranks->all_reduce(t, Purpose::control);
  ranks->all_reduce_async(t, Purpose::control)->wait();
  ranks->broadcast(t, 0, Purpose::control);
  ranks->gather(t, 0, Purpose::control);
  ranks->reduce(t, 0, Purpose::control);
  ranks->all_to_all(t, {1, 1}, {1, 1}, Purpose::control);
  EXPECT_EQ(ledger.of(Purpose::control).collectives, 7);
}

}  // namespace
}  // namespace bnlab
