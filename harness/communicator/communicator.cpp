#include "harness/communicator/communicator.hpp"

#include <torch/types.h>

#include <chrono>
#include <numeric>

#include "harness/communicator/reason.hpp"
#include "harness/support/activity.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

// Where a collective stands: for messages, and to book its time.
struct Place {
  const char* op;
  Purpose purpose;
  std::string group;
  Ledger& ledger;
  int64_t bytes = 0;  // handed over by this rank
};

class Timed {
 public:
  explicit Timed(const Place& place) : place_(place) {}
  ~Timed() {
    const std::chrono::nanoseconds time = std::chrono::steady_clock::now() - begin_;
    place_.ledger.add_time(place_.purpose, time.count());
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  const Place& place_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// What `body` returns; whatever it throws becomes an error of communication.
template <class Body>
auto at_place(const Place& place, const Body& body) {
  try {
    const Activity::InCollective here(place.op, kPurposeNames[static_cast<size_t>(place.purpose)],
                                      place.bytes);
    const Timed time(place);
    return body();
  } catch (const std::exception& cause) {
    const std::string missing = missing_peer();
    throw Error(Error::Kind::communication, std::string("collective ") + place.op + " (purpose " +
                                                kPurposeNames[static_cast<size_t>(place.purpose)] +
                                                ", group " + place.group +
                                                ") failed; another rank may have died or be stuck: " +
                                                (missing.empty() ? reason_of(cause) : missing));
  }
}

class Underway : public Pending {
 public:
  Underway(std::unique_ptr<Pending> started, Place place)
      : started_(std::move(started)), place_(std::move(place)) {}
  void wait() override {
    at_place(place_, [this] { started_->wait(); });
  }

 private:
  std::unique_ptr<Pending> started_;
  Place place_;
};

std::vector<int64_t> with_rows(int64_t rows, const at::Tensor& t) {  // [rows, sizes of t[0]]
  std::vector<int64_t> shape = t.sizes().vec();
  shape.front() = rows;
  return shape;
}

int64_t sent_bytes(const at::Tensor& t) {
  return static_cast<int64_t>(t.nbytes());
}

at::Tensor empty_for_all(int ranks, const at::Tensor& t) {  // [ranks, ...shape of t]
  return at::empty(with_rows(ranks, t.unsqueeze(0)), t.options());
}

}  // namespace

at::Tensor Communicator::all_gather(const at::Tensor& t, Purpose purpose) {
  book("all_gather", t, purpose);
  if (size() == 1) return t.unsqueeze(0);
  at::Tensor gathered = empty_for_all(size(), t);
  at_place({"all_gather", purpose, group_, ledger_, sent_bytes(t)},
           [&] { do_all_gather(t.contiguous(), gathered); });
  return gathered;
}

const peers::Ranks* Communicator::all_gather_by_kernel(const at::Tensor& t, Purpose purpose) {
  const peers::Ranks* ranks = nullptr;
  if (size() > 1)
    at_place({"all_gather", purpose, group_, ledger_, sent_bytes(t)}, [&] { ranks = ranks_for_kernels(); });
  if (ranks != nullptr) book("all_gather", t, purpose);
  return ranks;
}

void Communicator::all_reduce(at::Tensor& t, Purpose purpose) {
  book("all_reduce", t, purpose);
  if (size() > 1)
    at_place({"all_reduce", purpose, group_, ledger_, sent_bytes(t)}, [&] { do_all_reduce(t); });
}

std::unique_ptr<Pending> Communicator::all_reduce_async(at::Tensor& t, Purpose purpose) {
  book("all_reduce", t, purpose);
  if (size() == 1) return std::make_unique<Pending>();
  const Place place{"all_reduce", purpose, group_, ledger_, sent_bytes(t)};
  return std::make_unique<Underway>(at_place(place, [&] { return do_all_reduce_async(t); }), place);
}

void Communicator::broadcast(at::Tensor& t, int root, Purpose purpose) {
  book("broadcast", t, purpose);
  if (size() > 1)
    at_place({"broadcast", purpose, group_, ledger_, sent_bytes(t)}, [&] { do_broadcast(t, root); });
}

at::Tensor Communicator::gather(const at::Tensor& t, int root, Purpose purpose) {
  book("gather", t, purpose);
  if (size() == 1) return t.unsqueeze(0);
  at::Tensor gathered = rank() == root ? empty_for_all(size(), t) : at::Tensor();
  at_place({"gather", purpose, group_, ledger_, sent_bytes(t)},
           [&] { do_gather(t.contiguous(), gathered, root); });
  return gathered;
}

void Communicator::reduce(at::Tensor& t, int root, Purpose purpose) {
  book("reduce", t, purpose);
  if (size() > 1) at_place({"reduce", purpose, group_, ledger_, sent_bytes(t)}, [&] { do_reduce(t, root); });
}

at::Tensor Communicator::all_to_all(const at::Tensor& t, const std::vector<int64_t>& send,
                                    const std::vector<int64_t>& receive, Purpose purpose) {
  book("all_to_all", t, purpose);
  const auto ranks = static_cast<size_t>(size());
  if (send.size() != ranks || receive.size() != ranks ||
      std::accumulate(send.begin(), send.end(), int64_t{0}) != t.size(0)) {
    throw Error(Error::Kind::communication,
                "all_to_all: the shares must be one per rank and add up to the rows");
  }
  if (size() == 1) return t;
  const int64_t rows = std::accumulate(receive.begin(), receive.end(), int64_t{0});
  at::Tensor received = at::empty(with_rows(rows, t), t.options());
  at_place({"all_to_all", purpose, group_, ledger_, sent_bytes(t)},
           [&] { do_all_to_all(t.contiguous(), send, receive, received); });
  return received;
}

void Communicator::barrier() {
  ledger_.add("barrier", Purpose::control, 0, 0);
  if (size() > 1) at_place({"barrier", Purpose::control, group_, ledger_, 0}, [&] { do_barrier(); });
}

void Communicator::book(const char* op, const at::Tensor& t, Purpose purpose) {
  // Gloo sums the wrong memory of a strided view without a word.
  if (!t.is_non_overlapping_and_dense())
    throw Error(Error::Kind::communication, std::string(op) + ": the tensor must be dense");
  ledger_.add(op, purpose, t.numel(), sent_bytes(t));
}

}  // namespace bnlab
