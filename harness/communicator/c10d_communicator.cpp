// A Communicator over one c10d process group, which may be there already or made when it is needed.
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
  if (work) {
    work->wait();
  }
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
  C10dCommunicator(int rank, int size, std::function<BackendPointer()> make, Ledger& ledger,
                   std::string group)
      : Communicator(std::move(group), ledger), rank_(rank), size_(size), make_(std::move(make)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

 private:
  void do_all_gather(const at::Tensor& t, at::Tensor& gathered) override {
    at::Tensor sent = t.view(-1), received = gathered.view(-1);
    finish(backend()._allgather_base(received, sent, blocking<c10d::AllgatherOptions>()));
  }
  void do_all_reduce(at::Tensor& t) override {
    Tensors tensors{t};
    finish(backend().allreduce(tensors, blocking<c10d::AllreduceOptions>()));
  }
  std::unique_ptr<Pending> do_all_reduce_async(at::Tensor& t) override {
    Tensors tensors{t};
    return std::make_unique<PendingWork>(backend().allreduce(tensors));
  }
  void do_broadcast(at::Tensor& t, int root) override {
    Tensors tensors{t};
    finish(backend().broadcast(tensors, blocking<c10d::BroadcastOptions>(root)));
  }
  void do_gather(const at::Tensor& t, at::Tensor& gathered, int root) override {
    Tensors sent{t};
    std::vector<Tensors> received;
    if (gathered.defined()) {
      received.push_back(gathered.unbind(0));
    }
    finish(backend().gather(received, sent, blocking<c10d::GatherOptions>(root)));
  }
  void do_reduce(at::Tensor& t, int root) override {
    Tensors tensors{t};
    finish(backend().reduce(tensors, blocking<c10d::ReduceOptions>(root)));
  }
  void do_all_to_all(const at::Tensor& t, const std::vector<int64_t>& send,
                     const std::vector<int64_t>& receive, at::Tensor& received) override {
    at::Tensor sent = t;  // c10d wants them as variables
    std::vector<int64_t> rows_out = send, rows_in = receive;
    finish(backend().alltoall_base(received, sent, rows_in, rows_out, blocking<c10d::AllToAllOptions>()));
  }
  void do_barrier() override { finish(backend().barrier()); }

  c10d::Backend& backend() {
    if (!backend_) {
      backend_ = make_();
    }
    return *backend_;
  }

  int rank_, size_;
  std::function<BackendPointer()> make_;
  BackendPointer backend_;
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
  return std::make_unique<C10dCommunicator>(rank, size, std::move(make), ledger, std::move(group));
}

}  // namespace bnlab
