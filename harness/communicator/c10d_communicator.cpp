// A Communicator over one c10d process group. A world of one hands tensors back instead of calling the backend.
#include <numeric>
#include <utility>

#include "harness/communicator/c10d_parts.hpp"
#include "harness/error.hpp"

namespace bnlab {
namespace {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

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

class Underway : public Pending {
 public:
  Underway(WorkPointer work, std::string group, Purpose purpose)
      : work_(std::move(work)), group_(std::move(group)), purpose_(purpose) {}
  void wait() override {
    try {
      work_->wait();
    } catch (const std::exception& e) {
      fail(group_, "all_reduce", purpose_, e);
    }
  }

 private:
  WorkPointer work_;
  std::string group_;
  Purpose purpose_;
};

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

class C10dCommunicator : public Communicator {
 public:
  C10dCommunicator(c10::intrusive_ptr<c10d::Backend> backend, Ledger& ledger, std::string name)
      : backend_(std::move(backend)), ledger_(ledger), name_(std::move(name)) {}

  int rank() const override { return backend_->getRank(); }
  int size() const override { return backend_->getSize(); }

  at::Tensor all_gather(const at::Tensor& t, Purpose purpose) override {
    book("all_gather", t, purpose);
    if (size() == 1) {
      return t.unsqueeze(0);
    }
    at::Tensor sent = t.contiguous().view(-1);
    at::Tensor gathered = at::empty({size() * t.numel()}, t.options());
    wait_for("all_gather", purpose,
             [&] { return backend_->_allgather_base(gathered, sent, blocking<c10d::AllgatherOptions>()); });
    return gathered.view(of_all_ranks(t));
  }

  void all_reduce(at::Tensor& t, Purpose purpose) override {
    in_place("all_reduce", t, purpose, [&](Tensors& tensors) {
      return backend_->allreduce(tensors, blocking<c10d::AllreduceOptions>());
    });
  }

  std::unique_ptr<Pending> all_reduce_async(at::Tensor& t, Purpose purpose) override {
    book("all_reduce", t, purpose);
    if (size() == 1) {
      return std::make_unique<Pending>();
    }
    Tensors tensors{t};
    try {
      return std::make_unique<Underway>(backend_->allreduce(tensors), name_, purpose);
    } catch (const std::exception& e) {
      fail(name_, "all_reduce", purpose, e);
    }
  }

  void broadcast(at::Tensor& t, int root, Purpose purpose) override {
    in_place("broadcast", t, purpose, [&](Tensors& tensors) {
      return backend_->broadcast(tensors, blocking<c10d::BroadcastOptions>(root));
    });
  }

  at::Tensor gather(const at::Tensor& t, int root, Purpose purpose) override {
    book("gather", t, purpose);
    if (size() == 1) {
      return t.unsqueeze(0);
    }
    Tensors sent{t.contiguous()};
    std::vector<Tensors> received;
    at::Tensor gathered;
    if (rank() == root) {
      gathered = at::empty(of_all_ranks(t), t.options());
      received.push_back(gathered.unbind(0));
    }
    wait_for("gather", purpose,
             [&] { return backend_->gather(received, sent, blocking<c10d::GatherOptions>(root)); });
    return gathered;
  }

  void reduce(at::Tensor& t, int root, Purpose purpose) override {
    in_place("reduce", t, purpose, [&](Tensors& tensors) {
      return backend_->reduce(tensors, blocking<c10d::ReduceOptions>(root));
    });
  }

  at::Tensor all_to_all(const at::Tensor& t, const std::vector<int64_t>& send,
                        const std::vector<int64_t>& receive, Purpose purpose) override {
    book("all_to_all", t, purpose);
    if (size() == 1) {
      return t;
    }
    std::vector<int64_t> shape = t.sizes().vec();
    shape.front() = std::accumulate(receive.begin(), receive.end(), int64_t{0});
    at::Tensor sent = t.contiguous(), received = at::empty(shape, t.options());
    std::vector<int64_t> rows_out = send, rows_in = receive;  // c10d wants them as variables
    wait_for("all_to_all", purpose, [&] {
      return backend_->alltoall_base(received, sent, rows_in, rows_out, blocking<c10d::AllToAllOptions>());
    });
    return received;
  }

  void barrier() override {
    ledger_.add("barrier", Purpose::control, 0, 0);
    if (size() > 1) {
      wait_for("barrier", Purpose::control, [&] { return backend_->barrier(); });
    }
  }

 private:
  void book(const char* op, const at::Tensor& t, Purpose purpose) {
    // Gloo sums the wrong memory of a strided view without a word.
    if (!t.is_non_overlapping_and_dense()) {
      throw Error(Error::Kind::communication, std::string(op) + ": the tensor must be dense");
    }
    ledger_.add(op, purpose, t.numel(), static_cast<int64_t>(t.nbytes()));
  }

  // [size, ...shape of t]
  std::vector<int64_t> of_all_ranks(const at::Tensor& t) const {
    std::vector<int64_t> shape = t.sizes().vec();
    shape.insert(shape.begin(), size());
    return shape;
  }

  // start() begins the collective.
  template <class Start>
  void wait_for(const char* op, Purpose purpose, const Start& start) {
    try {
      start()->wait();
    } catch (const std::exception& e) {
      fail(name_, op, purpose, e);
    }
  }

  template <class Start>
  void in_place(const char* op, const at::Tensor& t, Purpose purpose, const Start& start) {
    book(op, t, purpose);
    if (size() > 1) {
      Tensors tensors{t};
      wait_for(op, purpose, [&] { return start(tensors); });
    }
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  Ledger& ledger_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(c10::intrusive_ptr<c10d::Backend> backend, Ledger& ledger,
                                                std::string name) {
  return std::make_unique<C10dCommunicator>(std::move(backend), ledger, std::move(name));
}

}  // namespace bnlab
