// A Communicator over one c10d process group.
#include <utility>

#include "harness/communicator/c10d_parts.hpp"

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

class PendingWork : public Pending {
 public:
  explicit PendingWork(WorkPointer work) : work_(std::move(work)) {}
  void wait() override { work_->wait(); }

 private:
  WorkPointer work_;
};

class C10dCommunicator : public Communicator {
 public:
  C10dCommunicator(c10::intrusive_ptr<c10d::Backend> backend, Ledger& ledger, std::string group)
      : Communicator(std::move(group), ledger), backend_(std::move(backend)) {}

  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }

 private:
  void do_all_gather(const at::Tensor& t, at::Tensor& gathered) override {
    at::Tensor sent = t.view(-1), received = gathered.view(-1);
    backend_->_allgather_base(received, sent, blocking<c10d::AllgatherOptions>())->wait();
  }
  void do_all_reduce(at::Tensor& t) override {
    Tensors tensors{t};
    backend_->allreduce(tensors, blocking<c10d::AllreduceOptions>())->wait();
  }
  std::unique_ptr<Pending> do_all_reduce_async(at::Tensor& t) override {
    Tensors tensors{t};
    return std::make_unique<PendingWork>(backend_->allreduce(tensors));
  }
  void do_broadcast(at::Tensor& t, int root) override {
    Tensors tensors{t};
    backend_->broadcast(tensors, blocking<c10d::BroadcastOptions>(root))->wait();
  }
  void do_gather(const at::Tensor& t, at::Tensor& gathered, int root) override {
    Tensors sent{t};
    std::vector<Tensors> received;
    if (gathered.defined()) {
      received.push_back(gathered.unbind(0));
    }
    backend_->gather(received, sent, blocking<c10d::GatherOptions>(root))->wait();
  }
  void do_reduce(at::Tensor& t, int root) override {
    Tensors tensors{t};
    backend_->reduce(tensors, blocking<c10d::ReduceOptions>(root))->wait();
  }
  void do_all_to_all(const at::Tensor& t, const std::vector<int64_t>& send,
                     const std::vector<int64_t>& receive, at::Tensor& received) override {
    at::Tensor sent = t;  // c10d wants them as variables
    std::vector<int64_t> rows_out = send, rows_in = receive;
    backend_->alltoall_base(received, sent, rows_in, rows_out, blocking<c10d::AllToAllOptions>())->wait();
  }
  void do_barrier() override { backend_->barrier()->wait(); }

  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace

std::unique_ptr<Communicator> make_c10d_communicator(c10::intrusive_ptr<c10d::Backend> backend,
                                                     Ledger& ledger, std::string group) {
  return std::make_unique<C10dCommunicator>(std::move(backend), ledger, std::move(group));
}

}  // namespace bnlab
