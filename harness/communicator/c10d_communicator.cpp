// A Communicator over c10d: over one backend, which may be there already or made when it is needed, or over a
// process group, which has a backend for each kind of device.
#include <algorithm>
#include <functional>
#include <utility>

#include "harness/communicator/world_parts.hpp"

namespace bnlab {
namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;

template <class Options>
Options blocking() {
  Options options;
  options.asyncOp = false;
  return options;
}

template <class Options>
Options blocking(int root) {
  Options options = blocking<Options>();
  options.rootRank = root;
  return options;
}

// NCCL gives no work to wait for where the call is blocking: it goes on in the order of the current stream.
void finish(const WorkPointer& work) {
  if (work) work->wait();
}

class PendingWork : public Pending {
 public:
  explicit PendingWork(WorkPointer work) : work_(std::move(work)) {}
  void wait() override { finish(work_); }

 private:
  WorkPointer work_;
};

using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

class C10dCommunicator : public Communicator {
 public:
  using BackendOf = std::function<c10d::Backend&(at::Device)>;

  C10dCommunicator(int rank, int size, BackendOf backend_of, Ledger& ledger, std::string group)
      : Communicator(std::move(group), ledger),
        rank_(rank),
        size_(size),
        backend_of_(std::move(backend_of)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

 private:
  void do_all_gather(const at::Tensor& t, at::Tensor& gathered) override {
    at::Tensor sent = t.view(-1), received = gathered.view(-1);
    finish(backend(t)._allgather_base(received, sent, blocking<c10d::AllgatherOptions>()));
  }
  void do_all_reduce(at::Tensor& t) override {
    Tensors tensors{t};
    finish(backend(t).allreduce(tensors, blocking<c10d::AllreduceOptions>()));
  }
  std::unique_ptr<Pending> do_all_reduce_async(at::Tensor& t) override {
    Tensors tensors{t};
    return std::make_unique<PendingWork>(backend(t).allreduce(tensors));
  }
  void do_broadcast(at::Tensor& t, int root) override {
    Tensors tensors{t};
    finish(backend(t).broadcast(tensors, blocking<c10d::BroadcastOptions>(root)));
  }
  void do_gather(const at::Tensor& t, at::Tensor& gathered, int root) override {
    Tensors sent{t};
    std::vector<Tensors> received;
    if (gathered.defined()) received.push_back(gathered.unbind(0));
    finish(backend(t).gather(received, sent, blocking<c10d::GatherOptions>(root)));
  }
  void do_reduce(at::Tensor& t, int root) override {
    Tensors tensors{t};
    finish(backend(t).reduce(tensors, blocking<c10d::ReduceOptions>(root)));
  }
  void do_all_to_all(const at::Tensor& t, const std::vector<int64_t>& send,
                     const std::vector<int64_t>& receive, at::Tensor& received) override {
    at::Tensor sent = t;  // c10d wants them as variables
    std::vector<int64_t> rows_out = send, rows_in = receive;
    finish(backend(t).alltoall_base(received, sent, rows_in, rows_out, blocking<c10d::AllToAllOptions>()));
  }
  void do_barrier() override { finish(backend_of_(at::kCPU).barrier()); }

  c10d::Backend& backend(const at::Tensor& t) const { return backend_of_(t.device()); }

  int rank_, size_;
  BackendOf backend_of_;
};

}  // namespace

std::unique_ptr<Communicator> make_c10d_communicator(c10::intrusive_ptr<c10d::Backend> backend,
                                                     Ledger& ledger, std::string group) {
  const int rank = backend->getRank(), size = backend->getSize();
  return make_lazy_communicator(
      rank, size, [backend = std::move(backend)] { return backend; }, ledger, std::move(group));
}

std::unique_ptr<Communicator> make_lazy_communicator(int rank, int size, std::function<BackendPointer()> make,
                                                     Ledger& ledger, std::string group) {
  const auto backend_of = [made = BackendPointer(),
                           make = std::move(make)](at::Device) mutable -> c10d::Backend& {
    if (!made) made = make();
    return *made;
  };
  return std::make_unique<C10dCommunicator>(rank, size, backend_of, ledger, std::move(group));
}

std::unique_ptr<Communicator> make_group_communicator(c10::intrusive_ptr<c10d::ProcessGroup> processes,
                                                      Ledger& ledger, std::string group) {
  const int rank = processes->getRank(), size = processes->getSize();
  const auto backend_of = [processes = std::move(processes)](at::Device device) -> c10d::Backend& {
    const std::vector<at::Device> devices = processes->getDeviceTypes();
    const bool taken = std::any_of(devices.begin(), devices.end(),
                                   [&](at::Device other) { return other.type() == device.type(); });
    return *processes->getBackend(taken || devices.empty() ? device.type() : devices.front().type());
  };
  return std::make_unique<C10dCommunicator>(rank, size, backend_of, ledger, std::move(group));
}

}  // namespace bnlab
