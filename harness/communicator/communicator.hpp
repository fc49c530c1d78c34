// Collectives between the ranks, and the ledger that counts them by purpose.
//
// Every member function is called by every rank, in the same order, with tensors of the same size and dtype.
// A mismatch is an error, and over sockets or NCCL it may kill the process. Tensors must be dense. A world of
// one books the same calls; its results may share the memory of what it was given.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bnlab {

namespace peers {
struct Ranks;
}

enum class Purpose { statistics, gradients, shuffle, loss, evaluation, control };
constexpr std::array<const char*, 6> kPurposeNames{"statistics", "gradients",  "shuffle",
                                                   "loss",       "evaluation", "control"};

struct Traffic {
  int64_t collectives = 0;
  int64_t bytes = 0;    // sent by this rank, counted once per collective
  int64_t host_ns = 0;  // the host's time; on a CPU the whole collective, waits for others included
};

// One collective, as `bnlab layer` lists it.
struct Collective {
  std::string op;
  int64_t elements = 0;  // sent by this rank
  Purpose purpose = Purpose::control;
  int64_t bytes = 0;
};

// Traffic of one rank. Shared by all its communicators.
class Ledger {
 public:
  void add(const char* op, Purpose purpose, int64_t elements, int64_t bytes) {
    purpose = evaluating_ ? Purpose::evaluation : purpose;
    Traffic& traffic = traffic_[static_cast<size_t>(purpose)];
    ++traffic.collectives;
    traffic.bytes += bytes;
    if (keep_list_) list_.push_back({.op = op, .elements = elements, .purpose = purpose, .bytes = bytes});
  }
  void add_time(Purpose purpose, int64_t host_ns) {
    traffic_[static_cast<size_t>(evaluating_ ? Purpose::evaluation : purpose)].host_ns += host_ns;
  }
  const Traffic& of(Purpose purpose) const { return traffic_[static_cast<size_t>(purpose)]; }
  // For a run that goes on from a checkpoint: what it has counted before.
  void set(Purpose purpose, const Traffic& traffic) { traffic_[static_cast<size_t>(purpose)] = traffic; }
  void clear() {
    traffic_ = {};
    list_.clear();
  }
  // While on, everything is booked as evaluation, so that a step's traffic is the step's own.
  void evaluating(bool on) { evaluating_ = on; }
  void keep_list(bool keep) { keep_list_ = keep; }
  const std::vector<Collective>& list() const { return list_; }

 private:
  std::array<Traffic, kPurposeNames.size()> traffic_{};
  bool evaluating_ = false;
  bool keep_list_ = false;
  std::vector<Collective> list_;
};

// A collective under way. This base class stands for one that is complete.
class Pending {
 public:
  virtual ~Pending() = default;
  virtual void wait() {}  // on a GPU the current stream waits, not the host
};

// The public members book the call, check the tensor and put errors into words. The private ones do the work
// over one kind of transport; they are called where there are two ranks or more.
class Communicator {
 public:
  // `group` is the name of this group of ranks in messages: "statistics", "gradients" or "host".
  Communicator(std::string group, Ledger& ledger) : group_(std::move(group)), ledger_(ledger) {}
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // [size, ...shape of t], in rank order.
  at::Tensor all_gather(const at::Tensor& t, Purpose purpose);
  // Where a kernel can make this all_gather itself (peers.hpp): the ranks, and the call is booked. Else null.
  const peers::Ranks* all_gather_by_kernel(const at::Tensor& t, Purpose purpose);
  void all_reduce(at::Tensor& t, Purpose purpose);  // sum, in place
  std::unique_ptr<Pending> all_reduce_async(at::Tensor& t, Purpose purpose);
  void broadcast(at::Tensor& t, int root, Purpose purpose);  // in place
  // On root: [size, ...shape of t], in rank order; undefined elsewhere.
  at::Tensor gather(const at::Tensor& t, int root, Purpose purpose);
  // Sum on root, in place. What the others hold afterwards is undefined.
  void reduce(at::Tensor& t, int root, Purpose purpose);
  // The first dimension of t is cut: send[r] rows go to rank r, receive[r] rows come from it. Returns the
  // received rows in rank order.
  at::Tensor all_to_all(const at::Tensor& t, const std::vector<int64_t>& send,
                        const std::vector<int64_t>& receive, Purpose purpose);
  void barrier();

 private:
  // `gathered` [size, ...shape of t] and `received` are there to be filled. All tensors that are not changed
  // in place are contiguous. gather() gets an undefined `gathered` on all ranks but the root.
  virtual void do_all_gather(const at::Tensor& t, at::Tensor& gathered) = 0;
  virtual void do_all_reduce(at::Tensor& t) = 0;
  virtual std::unique_ptr<Pending> do_all_reduce_async(at::Tensor& t) = 0;
  virtual void do_broadcast(at::Tensor& t, int root) = 0;
  virtual void do_gather(const at::Tensor& t, at::Tensor& gathered, int root) = 0;
  virtual void do_reduce(at::Tensor& t, int root) = 0;
  virtual void do_all_to_all(const at::Tensor& t, const std::vector<int64_t>& send,
                             const std::vector<int64_t>& receive, at::Tensor& received) = 0;
  virtual void do_barrier() = 0;
  virtual const peers::Ranks* ranks_for_kernels() { return nullptr; }

  void book(const char* op, const at::Tensor& t, Purpose purpose);

  std::string group_;
  Ledger& ledger_;
};

// Which rank an exchange over peers has missed, in a sentence; else "". CUDA then refuses all that follows in
// this process with an error that does not say it.
std::string missing_peer();

}  // namespace bnlab
