#include "harness/training/held_state.hpp"

#include <torch/types.h>

#include "harness/error.hpp"

namespace bnlab {
namespace {

Across effective(Across ranks, bool replicas) {
  return ranks == Across::same && replicas ? Across::own : ranks;
}

}  // namespace

void TakenState::tensor(const std::string& name, const at::Tensor& tensor, Across ranks) {
  const bool same = effective(ranks, replicas_) == Across::same;
  (same ? same_ : apart_).push_back({name, tensor.detach().cpu().contiguous()});
}

// One exchange of bytes serves all tensors that differ.
Held TakenState::gathered(Communicator& host) const {
  std::vector<at::Tensor> pieces;
  for (const NamedTensor& t : apart_) {
    pieces.push_back(t.tensor.reshape(-1).view(at::kByte));
  }
  Held held{same_, values_, host.size()};
  if (pieces.empty()) {
    return held;
  }
  const at::Tensor bytes = host.gather(at::cat(pieces), 0, Purpose::control);  // [ranks, bytes]
  int64_t begin = 0;
  for (size_t i = 0; i < apart_.size() && host.rank() == 0; ++i) {
    const at::Tensor& own = apart_[i].tensor;
    std::vector<int64_t> shape = own.sizes().vec();
    shape.insert(shape.begin(), host.size());
    const at::Tensor of_ranks = bytes.narrow(1, begin, pieces[i].numel()).clone(at::MemoryFormat::Contiguous);
    held.tensors.push_back({apart_[i].name, of_ranks.view(-1).view(own.scalar_type()).view(shape)});
    begin += pieces[i].numel();
  }
  return held;
}

GivenState::GivenState(const Held& held, bool replicas, const World& world)
    : values_(held.values), ranks_(held.ranks), replicas_(replicas), world_(world) {
  for (const NamedTensor& t : held.tensors) {
    tensors_.emplace(t.name, t.tensor);
  }
}

void GivenState::tensor(const std::string& name, const at::Tensor& tensor, Across ranks) {
  const at::NoGradGuard no_grad;
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw Error(Error::Kind::data, "the checkpoint lacks " + name);
  }
  const at::Tensor here = of_rank(name, found->second, effective(ranks, replicas_));
  if (here.sizes() != tensor.sizes() || here.scalar_type() != tensor.scalar_type()) {
    throw Error(Error::Kind::data, "the checkpoint holds " + name + " of another shape or type");
  }
  tensor.copy_(here);
}

at::Tensor GivenState::of_rank(const std::string& name, const at::Tensor& held, Across ranks) const {
  if (ranks == Across::same) {
    return held;
  }
  if (same_ranks()) {
    return held[world_.rank()];
  }
  switch (ranks) {
    case Across::sum:
      return world_.rank() == 0 ? held.sum(0, false, held.scalar_type()) : at::zeros_like(held[0]);
    case Across::mean:
      return held.mean(0);
    case Across::towers:
      return held.flatten(0, 1).chunk(world_.size())[static_cast<size_t>(world_.rank())];
    default:
      throw Error(Error::Kind::refused, "the ranks of this run differ in " + name + ": it goes on with " +
                                            std::to_string(ranks_) + " ranks only");
  }
}

}  // namespace bnlab
