#include "strategies/engine/sample_exchange.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <algorithm>

#include "harness/support/upload.hpp"

namespace bnlab {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class Move : public torch::autograd::Function<Move> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const c10::intrusive_ptr<SampleExchange>& exchange, bool restore) {
    ctx->saved_data["exchange"] = c10::IValue::make_capsule(exchange);
    ctx->saved_data["restore"] = restore;
    return exchange->move(x, restore);
  }

  static variable_list backward(AutogradContext* ctx, variable_list dys) {
    const auto capsule = ctx->saved_data["exchange"].toCapsule();
    const bool restore = ctx->saved_data["restore"].toBool();
    return {apply(dys[0], c10::static_intrusive_pointer_cast<SampleExchange>(capsule), !restore), {}, {}};
  }
};

std::vector<int64_t> inverse(const std::vector<int64_t>& order) {
  std::vector<int64_t> result(order.size());
  for (size_t i = 0; i < order.size(); ++i) result[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return result;
}

// Undefined where nothing is to be reordered.
at::Tensor index(const std::vector<int64_t>& order, at::Device device) {
  return std::is_sorted(order.begin(), order.end()) ? at::Tensor() : uploaded(order, device);
}

at::Tensor reordered(const at::Tensor& rows, const at::Tensor& order) {
  return order.defined() ? rows.index_select(0, order) : rows;
}

}  // namespace

SampleExchange::SampleExchange(const std::vector<int64_t>& permutation, const Towers& towers,
                               int64_t rows_per_sample, at::Device device, Communicator& communicator)
    : communicator_(communicator) {
  const auto ranks = static_cast<size_t>(towers.ranks());
  std::vector<int64_t> begin{0};  // every rank's rows and places
  for (int r = 0; r < towers.ranks(); ++r) begin.push_back(towers.begin_of_rank(r + 1) * rows_per_sample);
  const auto rank_of = [&](int64_t row) {
    return static_cast<size_t>(std::upper_bound(begin.begin(), begin.end(), row) - begin.begin()) - 1;
  };
  const auto here = static_cast<size_t>(towers.rank());
  std::vector<int64_t> pick, send(ranks), receive(ranks);
  std::vector<std::vector<int64_t>> places(ranks);  // here, by the rank whose row comes
  for (size_t i = 0; i < permutation.size(); ++i) {
    const auto place = static_cast<int64_t>(i);
    const size_t from = rank_of(permutation[i]), to = rank_of(place);
    if (from == here) {
      pick.push_back(permutation[i] - begin[here]);
      ++send[to];
    }
    if (to == here) {
      places[from].push_back(place - begin[here]);
      ++receive[from];
    }
  }
  std::vector<int64_t> arrived;  // the place of each received row
  for (const std::vector<int64_t>& from : places) arrived.insert(arrived.end(), from.begin(), from.end());
  scatter_ = {.pick = index(pick, device),
              .send = send,
              .receive = receive,
              .place = index(inverse(arrived), device)};
  restore_ = {.pick = index(arrived, device),
              .send = receive,
              .receive = send,
              .place = index(inverse(pick), device)};
}

at::Tensor SampleExchange::move(const at::Tensor& x, bool restore) const {
  const Way& way = restore ? restore_ : scatter_;
  // Rows travel in logical order: the ranks' tensors may differ in memory format.
  const at::Tensor sent = reordered(x, way.pick).contiguous();
  const at::Tensor received = communicator_.all_to_all(sent, way.send, way.receive, Purpose::shuffle);
  return reordered(received, way.place).contiguous(x.suggest_memory_format());
}

at::Tensor scatter(const at::Tensor& x, const c10::intrusive_ptr<SampleExchange>& exchange) {
  return Move::apply(x, exchange, false);
}

at::Tensor restore(const at::Tensor& x, const c10::intrusive_ptr<SampleExchange>& exchange) {
  return Move::apply(x, exchange, true);
}

}  // namespace bnlab
