#include "harness/communicator/world_parts.hpp"

#include <ATen/Dispatch.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

namespace bnlab {
namespace {

using Kind = SharedMemory::Kind;
constexpr size_t kSlot = SharedMemory::kSlotBytes;

std::byte* bytes_of(const at::Tensor& t) {
  return static_cast<std::byte*>(t.data_ptr());
}

// sum += row, both of `bytes` bytes, element by element.
void add(at::ScalarType type, std::byte* sum, const std::byte* row, size_t bytes) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, type, "sum over ranks", [&] {
    auto* const a = reinterpret_cast<scalar_t*>(sum);
    const auto* const b = reinterpret_cast<const scalar_t*>(row);
    for (size_t i = 0; i < bytes / sizeof(scalar_t); ++i) a[i] = static_cast<scalar_t>(a[i] + b[i]);
  });
}

// Calls body(offset, bytes) for every piece of a tensor: what is larger than a slot takes several epochs.
template <class Body>
void in_pieces(size_t bytes, const Body& body) {
  for (size_t offset = 0; offset < bytes; offset += kSlot) body(offset, std::min(kSlot, bytes - offset));
}

using Bytes = std::span<std::byte>;

size_t row_bytes(const at::Tensor& t) {
  return static_cast<size_t>(c10::multiply_integers(t.sizes().slice(1))) * t.itemsize();
}

// The rows of a tensor that are meant for each rank, or come from it.
std::vector<Bytes> shares_of(const at::Tensor& t, const std::vector<int64_t>& rows) {
  const Bytes all(bytes_of(t), t.nbytes());
  std::vector<Bytes> shares;
  size_t begin = 0;
  for (const int64_t count : rows) {
    shares.push_back(all.subspan(begin, static_cast<size_t>(count) * row_bytes(t)));
    begin += shares.back().size();
  }
  return shares;
}

// What is left from `offset` on, at most `most` bytes.
Bytes piece_of(Bytes share, size_t offset, size_t most) {
  share = share.subspan(std::min(share.size(), offset));
  return share.first(std::min(share.size(), most));
}

class SharedCommunicator : public Communicator {
 public:
  SharedCommunicator(std::unique_ptr<SharedMemory> memory, Ledger& ledger, std::string group)
      : Communicator(std::move(group), ledger), memory_(std::move(memory)) {}

  int rank() const override { return memory_->rank(); }
  int size() const override { return memory_->ranks(); }

 private:
  void do_all_gather(const at::Tensor& t, at::Tensor& gathered) override {
    collect("all_gather", t, &gathered);
  }
  void do_gather(const at::Tensor& t, at::Tensor& gathered, int root) override {
    collect("gather", t, rank() == root ? &gathered : nullptr);
  }
  void do_all_reduce(at::Tensor& t) override { sum("all_reduce", t, /*here=*/true); }
  void do_reduce(at::Tensor& t, int root) override { sum("reduce", t, /*here=*/rank() == root); }
  std::unique_ptr<Pending> do_all_reduce_async(at::Tensor& t) override {
    do_all_reduce(t);
    return std::make_unique<Pending>();
  }

  void do_broadcast(at::Tensor& t, int root) override {
    const Kind kind{"broadcast", t.nbytes()};
    in_pieces(t.nbytes(), [&](size_t offset, size_t bytes) {
      if (rank() == root) std::memcpy(memory_->slot(kind), bytes_of(t) + offset, bytes);
      memory_->publish();
      if (rank() != root) std::memcpy(bytes_of(t) + offset, memory_->slot_of(root, kind), bytes);
    });
  }

  // A slot begins with a byte that says whether this rank has more to send than fits; a section for every
  // rank follows. Epochs go on until no rank has more.
  void do_all_to_all(const at::Tensor& t, const std::vector<int64_t>& send,
                     const std::vector<int64_t>& receive, at::Tensor& received) override {
    const std::vector<Bytes> to = shares_of(t, send), from = shares_of(received, receive);
    const Kind kind{"all_to_all", row_bytes(t)};
    const size_t section = (kSlot - 1) / to.size();
    bool more = true;
    for (size_t offset = 0; more; offset += section) {
      std::byte* const mine = memory_->slot(kind);
      more = std::any_of(to.begin(), to.end(), [&](Bytes share) { return share.size() > offset + section; });
      mine[0] = std::byte{more};
      for (size_t r = 0; r < to.size(); ++r)
        std::ranges::copy(piece_of(to[r], offset, section), mine + 1 + r * section);
      memory_->publish();
      for (size_t r = 0; r < from.size(); ++r) {
        const std::byte* const theirs = memory_->slot_of(static_cast<int>(r), kind);
        more = more || theirs[0] != std::byte{0};
        const Bytes piece = piece_of(from[r], offset, section);
        std::copy_n(theirs + 1 + static_cast<size_t>(rank()) * section, piece.size(), piece.begin());
      }
    }
  }

  void do_barrier() override { memory_->barrier(); }

  // Every rank publishes its tensor; where `gathered` is given, all of them are copied there, in rank order.
  void collect(const char* op, const at::Tensor& t, at::Tensor* gathered) {
    const Kind kind{op, t.nbytes()};
    in_pieces(t.nbytes(), [&](size_t offset, size_t bytes) {
      std::memcpy(memory_->slot(kind), bytes_of(t) + offset, bytes);
      memory_->publish();
      for (int rank = 0; gathered != nullptr && rank < size(); ++rank) {
        std::memcpy(bytes_of(*gathered) + static_cast<size_t>(rank) * t.nbytes() + offset,
                    memory_->slot_of(rank, kind), bytes);
      }
    });
  }

  // Every rank publishes its tensor; where `here` is true, t becomes the sum.
  void sum(const char* op, at::Tensor& t, bool here) {
    TORCH_CHECK(t.scalar_type() != at::kBool && !t.is_complex(), "no sum of ", t.scalar_type(),
                " over ranks");
    const Kind kind{op, t.nbytes()};
    in_pieces(t.nbytes(), [&](size_t offset, size_t bytes) {
      std::memcpy(memory_->slot(kind), bytes_of(t) + offset, bytes);
      memory_->publish();
      for (int rank = 0; here && rank < size(); ++rank)
        if (rank == 0)
          std::memcpy(bytes_of(t) + offset, memory_->slot_of(0, kind), bytes);
        else
          add(t.scalar_type(), bytes_of(t) + offset, memory_->slot_of(rank, kind), bytes);
    });
  }

  std::unique_ptr<SharedMemory> memory_;
};

}  // namespace

std::unique_ptr<Communicator> make_shared_communicator(std::unique_ptr<SharedMemory> memory, Ledger& ledger,
                                                       std::string group) {
  return std::make_unique<SharedCommunicator>(std::move(memory), ledger, std::move(group));
}

}  // namespace bnlab
