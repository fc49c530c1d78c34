#include "harness/communicator/c10d_communicator.hpp"

#include <numeric>
#include <utility>

#include "harness/error.hpp"

namespace bnlab {
namespace {

// The first line of a message; LibTorch appends its call stack.
std::string first_line(const std::exception& cause) {
  const auto* error = dynamic_cast<const c10::Error*>(&cause);
  const std::string text = error != nullptr ? error->what_without_backtrace() : cause.what();
  return text.substr(0, text.find('\n'));
}

[[noreturn]] void fail(const std::string& group, const char* op, Purpose purpose,
                       const std::exception& cause) {
  throw Error(Error::Kind::communication,
              std::string("collective ") + op + " (purpose " + kPurposeNames[static_cast<size_t>(purpose)] +
                  ", group " + group +
                  ") failed; another rank may have died or be stuck: " + first_line(cause));
}

class Finished : public Pending {
 public:
  void wait() override {}
};

class Underway : public Pending {
 public:
  Underway(c10::intrusive_ptr<c10d::Work> work, std::string group, Purpose purpose)
      : work_(std::move(work)), group_(std::move(group)), purpose_(purpose) {}
  void wait() override {
    try {
      work_->wait();
    } catch (const std::exception& e) {
      fail(group_, "all_reduce", purpose_, e);
    }
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::string group_;
  Purpose purpose_;
};

}  // namespace

C10dCommunicator::C10dCommunicator(c10::intrusive_ptr<c10d::Backend> backend, Ledger& ledger,
                                   std::string name)
    : backend_(std::move(backend)), ledger_(ledger), name_(std::move(name)) {}

void C10dCommunicator::note(const char* op, const at::Tensor& t, Purpose purpose) {
  // Gloo sums the wrong memory of a strided view without a word.
  if (!t.is_non_overlapping_and_dense()) {
    throw Error(Error::Kind::communication, std::string(op) + ": the tensor must be dense");
  }
  ledger_.add(op, purpose, t.numel(), static_cast<int64_t>(t.nbytes()));
}

template <class Start>
void C10dCommunicator::wait_for(const char* op, Purpose purpose, const Start& start) {
  try {
    start()->wait();
  } catch (const std::exception& e) {
    fail(name_, op, purpose, e);
  }
}

at::Tensor C10dCommunicator::all_gather(const at::Tensor& t, Purpose purpose) {
  note("all_gather", t, purpose);
  if (size() == 1) {
    return t.unsqueeze(0);
  }
  std::vector<int64_t> shape = t.sizes().vec();
  shape.insert(shape.begin(), size());
  at::Tensor sent = t.contiguous().view(-1);
  at::Tensor gathered = at::empty({size() * t.numel()}, t.options());
  c10d::AllgatherOptions options;
  options.asyncOp = false;
  wait_for("all_gather", purpose, [&] { return backend_->_allgather_base(gathered, sent, options); });
  return gathered.view(shape);
}

void C10dCommunicator::all_reduce(at::Tensor& t, Purpose purpose) {
  note("all_reduce", t, purpose);
  if (size() == 1) {
    return;
  }
  c10d::AllreduceOptions options;
  options.asyncOp = false;
  std::vector<at::Tensor> tensors{t};
  wait_for("all_reduce", purpose, [&] { return backend_->allreduce(tensors, options); });
}

std::unique_ptr<Pending> C10dCommunicator::all_reduce_async(at::Tensor& t, Purpose purpose) {
  note("all_reduce", t, purpose);
  if (size() == 1) {
    return std::make_unique<Finished>();
  }
  std::vector<at::Tensor> tensors{t};
  try {
    return std::make_unique<Underway>(backend_->allreduce(tensors), name_, purpose);
  } catch (const std::exception& e) {
    fail(name_, "all_reduce", purpose, e);
  }
}

void C10dCommunicator::broadcast(at::Tensor& t, int root, Purpose purpose) {
  note("broadcast", t, purpose);
  if (size() == 1) {
    return;
  }
  c10d::BroadcastOptions options;
  options.rootRank = root;
  options.asyncOp = false;
  std::vector<at::Tensor> tensors{t};
  wait_for("broadcast", purpose, [&] { return backend_->broadcast(tensors, options); });
}

at::Tensor C10dCommunicator::gather(const at::Tensor& t, int root, Purpose purpose) {
  note("gather", t, purpose);
  if (size() == 1) {
    return t.unsqueeze(0);
  }
  c10d::GatherOptions options;
  options.rootRank = root;
  options.asyncOp = false;
  std::vector<at::Tensor> sent{t.contiguous()};
  std::vector<std::vector<at::Tensor>> received;
  at::Tensor gathered;
  if (rank() == root) {
    std::vector<int64_t> shape = t.sizes().vec();
    shape.insert(shape.begin(), size());
    gathered = at::empty(shape, t.options());
    received.push_back(gathered.unbind(0));
  }
  wait_for("gather", purpose, [&] { return backend_->gather(received, sent, options); });
  return gathered;
}

void C10dCommunicator::reduce(at::Tensor& t, int root, Purpose purpose) {
  note("reduce", t, purpose);
  if (size() == 1) {
    return;
  }
  c10d::ReduceOptions options;
  options.rootRank = root;
  options.asyncOp = false;
  std::vector<at::Tensor> tensors{t};
  wait_for("reduce", purpose, [&] { return backend_->reduce(tensors, options); });
}

at::Tensor C10dCommunicator::all_to_all(const at::Tensor& t, const std::vector<int64_t>& send,
                                        const std::vector<int64_t>& receive, Purpose purpose) {
  note("all_to_all", t, purpose);
  if (size() == 1) {
    return t;
  }
  std::vector<int64_t> shape = t.sizes().vec();
  shape.front() = std::accumulate(receive.begin(), receive.end(), int64_t{0});
  at::Tensor sent = t.contiguous(), received = at::empty(shape, t.options());
  std::vector<int64_t> rows_out = send, rows_in = receive;  // c10d wants them as variables
  c10d::AllToAllOptions options;
  options.asyncOp = false;
  wait_for("all_to_all", purpose,
           [&] { return backend_->alltoall_base(received, sent, rows_in, rows_out, options); });
  return received;
}

void C10dCommunicator::barrier() {
  ledger_.add("barrier", Purpose::control, 0, 0);
  if (size() == 1) {
    return;
  }
  wait_for("barrier", Purpose::control, [&] { return backend_->barrier(); });
}

}  // namespace bnlab
