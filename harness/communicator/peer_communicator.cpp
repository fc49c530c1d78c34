// A communicator between the GPUs of one host, over memory that the ranks open to each other by CUDA IPC. It
// needs no NCCL, and ranks may share a GPU.
#include "harness/communicator/world_parts.hpp"

#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <utility>

#include "harness/communicator/peers.hpp"
#endif

#include "harness/communicator/rendezvous.hpp"

namespace bnlab {

#ifdef USE_C10D_NCCL
namespace {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // what comes next in this process shall not find it
  throw Error(Error::Kind::environment, std::string(what) + ": " + cudaGetErrorString(error));
}

// The memories of this process, and what one of those that are gone has missed, for missing_peer().
struct Open {
  std::mutex mutex;
  std::vector<const unsigned*> missing;
  std::string missed;
};
Open& open_memories() {
  static auto& all = *new Open;  // threads may end after main()
  return all;
}

std::string text_of_missing(const unsigned* missing) {
  const unsigned rank = *static_cast<const volatile unsigned*>(missing);
  return rank == 0 ? ""
                   : "rank " + std::to_string(rank - 1) +
                         " did not take part in an exchange through memory of the GPUs within the timeout";
}

// A rank's region, and those of the others, opened here.
class PeerMemory {
 public:
  PeerMemory(int rank, int size, std::chrono::nanoseconds timeout) {
    ranks_.rank = rank;
    ranks_.size = size;
    // Before the host gives up on a replayed step, which would not say whom it waits for.
    ranks_.limit_ns = timeout.count() * 4 / 5;
    if (size > peers::kMostRanks)
      throw Error(Error::Kind::environment, "at most " + std::to_string(peers::kMostRanks) +
                                                " ranks exchange over peers, not " + std::to_string(size));
    void *own = nullptr, *missing = nullptr;
    const auto bytes = static_cast<size_t>(peers::region_bytes(size));
    check(cudaMalloc(&own, bytes), "no memory for the other ranks");
    ranks_.region[static_cast<size_t>(rank)] = static_cast<std::byte*>(own);
    check(cudaMemset(own, 0, peers::kHeaderBytes), "no memory for the other ranks");
    check(cudaDeviceSynchronize(), "no memory for the other ranks");
    check(cudaHostAlloc(&missing, sizeof(unsigned), cudaHostAllocMapped | cudaHostAllocPortable),
          "no memory of the host");
    ranks_.missing = static_cast<unsigned*>(missing);
    *ranks_.missing = 0;
    const std::lock_guard lock(open_memories().mutex);
    open_memories().missing.push_back(ranks_.missing);
  }
  ~PeerMemory() {
    {
      const std::lock_guard lock(open_memories().mutex);
      std::erase(open_memories().missing, ranks_.missing);
      if (std::string text = text_of_missing(ranks_.missing); !text.empty()) open_memories().missed = text;
    }
    for (int r = 0; r < ranks_.size; ++r) {
      std::byte* const region = ranks_.region[static_cast<size_t>(r)];
      if (region != nullptr) r == ranks_.rank ? cudaFree(region) : cudaIpcCloseMemHandle(region);
    }
    cudaFreeHost(ranks_.missing);
  }
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;

  std::string handle() const {
    cudaIpcMemHandle_t handle;
    check(cudaIpcGetMemHandle(&handle, ranks_.region[static_cast<size_t>(ranks_.rank)]),
          "this GPU's memory cannot be opened to other processes");
    return {reinterpret_cast<const char*>(&handle), sizeof handle};
  }
  void open(int rank, const std::string& text) {
    cudaIpcMemHandle_t handle;
    void* region = nullptr;
    std::memcpy(&handle, text.data(), std::min(text.size(), sizeof handle));
    check(cudaIpcOpenMemHandle(&region, handle, cudaIpcMemLazyEnablePeerAccess),
          ("the memory of rank " + std::to_string(rank) + "'s GPU cannot be opened").c_str());
    ranks_.region[static_cast<size_t>(rank)] = static_cast<std::byte*>(region);
  }
  const peers::Ranks& ranks() const { return ranks_; }

 private:
  peers::Ranks ranks_;
};

std::string key(const char* what, int rank) {
  return std::string(what) + "/" + std::to_string(rank);
}

// Called by every rank, with its problem or "". Where one of them has any, all of them throw it.
void agree(c10d::Store& store, const Rendezvous& at, const char* step, const std::string& problem) {
  store.set(key(step, at.rank), problem.empty() ? "ok" : problem);
  for (int r = 0; r < at.size; ++r) {
    const std::string said = store.get_to_str(key(step, r));
    if (said != "ok")
      throw Error(Error::Kind::environment,
                  "rank " + std::to_string(r) + " cannot exchange over peers: " + said +
                      "; without --exchange peers ranks on GPUs exchange through NCCL");
  }
}

std::unique_ptr<PeerMemory> open_to_all(c10d::Store& store, const Rendezvous& at) {
  std::unique_ptr<PeerMemory> memory;
  std::string problem;
  const auto tried = [&](const auto& body) {
    try {
      if (problem.empty()) body();
    } catch (const Error& error) {
      problem = error.what();
    }
  };
  std::string handle(1, ' ');
  tried([&] {
    memory = std::make_unique<PeerMemory>(at.rank, at.size, at.timeout);
    handle = memory->handle();
  });
  store.set(key("handle", at.rank), handle);
  for (int r = 0; r < at.size; ++r) {
    const std::string theirs = store.get_to_str(key("handle", r));
    tried([&] {
      if (r != at.rank && theirs.size() > 1) memory->open(r, theirs);
    });
  }
  agree(store, at, "opened", problem);
  return memory;
}

class PeerCommunicator : public Communicator {
 public:
  PeerCommunicator(std::unique_ptr<PeerMemory> memory, Ledger& ledger, std::string group)
      : Communicator(std::move(group), ledger), memory_(std::move(memory)) {}

  int rank() const override { return ranks().rank; }
  int size() const override { return ranks().size; }

  // Sums whose results are known, through every slot of every lane. What is wrong with them, or "".
  std::string problem_of_sums() {
    constexpr int64_t kSums = peers::kLanes * 4 * peers::kSlotBytes / static_cast<int64_t>(sizeof(double));
    const at::Tensor known = at::arange(kSums, at::kDouble);
    at::Tensor sum = (known * (rank() + 1)).to(at::Device(at::kCUDA, c10::cuda::current_device()));
    do_all_reduce(sum);
    return at::equal(sum.cpu(), known * (size() * (size() + 1) / 2)) ? ""
                                                                     : "sums that are known came out wrong";
  }

 private:
  void do_all_gather(const at::Tensor& t, at::Tensor& gathered) override { collect(t, &gathered, kAll); }
  void do_gather(const at::Tensor& t, at::Tensor& gathered, int root) override {
    collect(t, gathered.defined() ? &gathered : nullptr, root);
  }
  void do_all_reduce(at::Tensor& t) override { sum(t, kAll); }
  void do_reduce(at::Tensor& t, int root) override { sum(t, root); }
  std::unique_ptr<Pending> do_all_reduce_async(at::Tensor& t) override {
    do_all_reduce(t);
    return std::make_unique<Pending>();
  }

  void do_broadcast(at::Tensor& t, int root) override {
    peers::Call call = call_of(t, &t);
    for (size_t r = 0; r < static_cast<size_t>(size()); ++r)
      if (rank() == root) call.sent[r] = {0, bytes_of(t)};
    if (rank() != root) call.received[static_cast<size_t>(root)] = {0, bytes_of(t)};
    peers::exchange(ready(), call, lanes_for(bytes_of(t)));
  }

  void do_all_to_all(const at::Tensor& t, const std::vector<int64_t>& send,
                     const std::vector<int64_t>& receive, at::Tensor& received) override {
    const int64_t row = c10::multiply_integers(t.sizes().slice(1)) * static_cast<int64_t>(t.itemsize());
    peers::Call call = call_of(t, &received);
    int64_t sent = 0, taken = 0;
    for (size_t r = 0; r < send.size(); ++r) {
      call.sent[r] = {sent, send[r] * row};
      call.received[r] = {taken, receive[r] * row};
      sent += send[r] * row;
      taken += receive[r] * row;
    }
    peers::exchange(ready(), call, peers::kLanes);  // no rank knows what the others send each other
  }

  void do_barrier() override {
    peers::exchange(ready(), {}, 1);
    c10::cuda::getCurrentCUDAStream().synchronize();
    ready();
  }

  const peers::Ranks* ranks_for_kernels() override { return &ready(); }

  static constexpr int kAll = -1;

  // Every rank's tensor, on `root` or on all.
  void collect(const at::Tensor& t, at::Tensor* gathered, int root) {
    peers::Call call = call_of(t, gathered);
    for (int r = 0; r < size(); ++r) {
      const auto i = static_cast<size_t>(r);
      if (root == kAll || root == r) call.sent[i] = {0, bytes_of(t)};
      if (gathered != nullptr) call.received[i] = {r * bytes_of(t), bytes_of(t)};
    }
    peers::exchange(ready(), call, lanes_for(bytes_of(t)));
  }

  void sum(at::Tensor& t, int root) {
    TORCH_CHECK(t.scalar_type() != at::kBool && !t.is_complex(), "no sum of ", t.scalar_type(),
                " over ranks");
    peers::Call call = call_of(t, &t);
    for (int r = 0; r < size(); ++r)
      if (root == kAll || root == r) call.sent[static_cast<size_t>(r)] = {0, bytes_of(t)};
    if (root == kAll || root == rank()) call.received[static_cast<size_t>(rank())] = {0, bytes_of(t)};
    peers::exchange_sum(ready(), call, lanes_for(bytes_of(t)), t.scalar_type());
  }

  static int64_t bytes_of(const at::Tensor& t) { return static_cast<int64_t>(t.nbytes()); }
  static peers::Call call_of(const at::Tensor& from, at::Tensor* to) {
    peers::Call call;
    call.from = static_cast<const std::byte*>(from.const_data_ptr());
    call.to = to == nullptr ? nullptr : static_cast<std::byte*>(to->data_ptr());
    return call;
  }
  static int lanes_for(int64_t bytes) {
    return static_cast<int>(
        std::clamp<int64_t>((bytes + peers::kSlotBytes - 1) / peers::kSlotBytes, 1, peers::kLanes));
  }

  const peers::Ranks& ranks() const { return memory_->ranks(); }
  // Throws where an earlier exchange has waited in vain.
  const peers::Ranks& ready() const {
    const std::string missing = text_of_missing(ranks().missing);
    if (!missing.empty()) throw Error(Error::Kind::communication, missing);
    return ranks();
  }

  std::unique_ptr<PeerMemory> memory_;
};

}  // namespace

std::unique_ptr<Communicator> make_peer_communicator(const c10::intrusive_ptr<c10d::Store>& store,
                                                     const Rendezvous& at, Ledger& ledger,
                                                     std::string group) {
  auto made = std::make_unique<PeerCommunicator>(open_to_all(*store, at), ledger, std::move(group));
  agree(*store, at, "summed", made->problem_of_sums());
  return made;
}

std::string missing_peer() {
  const std::lock_guard lock(open_memories().mutex);
  for (const unsigned* missing : open_memories().missing)
    if (std::string text = text_of_missing(missing); !text.empty()) return text;
  return open_memories().missed;
}
#else
std::unique_ptr<Communicator> make_peer_communicator(const c10::intrusive_ptr<c10d::Store>&,
                                                     const Rendezvous&, Ledger&, std::string) {
  throw Error(Error::Kind::environment, "this build has no CUDA; run with --device cpu");
}

std::string missing_peer() {
  return "";
}
#endif

}  // namespace bnlab
