#include "harness/embed/bnlab/data_parallel.hpp"

#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "harness/communicator/reason.hpp"
#include "harness/communicator/world.hpp"
#include "harness/embed/meeting.hpp"
#include "harness/error.hpp"
#include "harness/mapped.hpp"

namespace bnlab {
namespace {

std::vector<at::Tensor> trained_parameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> trained = module.parameters();
  std::erase_if(trained, [](const at::Tensor& p) { return !p.requires_grad(); });
  return trained;
}

bool same_tensors(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& x, const at::Tensor& y) { return x.is_same(y); });
}

// The gradients as they are, and how often each has been written.
using Gradients = std::vector<std::pair<at::Tensor, int64_t>>;

Gradients gradients_of(const std::vector<at::Tensor>& parameters) {
  return mapped(parameters, [](const at::Tensor& parameter) {
    const at::Tensor& grad = parameter.grad();
    return std::pair(grad, grad.defined() ? static_cast<int64_t>(grad._version()) : 0);
  });
}

// The names of the parameters whose gradients nobody has written since, "" where all have been.
std::string not_reached(const torch::nn::Module& module, const std::vector<at::Tensor>& parameters,
                        const Gradients& before) {
  const Gradients now = gradients_of(parameters);
  std::string names;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!now[i].first.is_same(before[i].first) || now[i].second != before[i].second) {
      continue;
    }
    for (const auto& named : module.named_parameters()) {
      if (named.value().is_same(parameters[i])) {
        names += (names.empty() ? "" : ", ") + named.key();
      }
    }
  }
  return names;
}

}  // namespace

DataParallel::DataParallel(torch::nn::Module& module, Ranks ranks, const Options& options)
    : module_(module), ranks_(ranks.expecting()), options_(options) {
  broadcast();
  renew();
}

DataParallel::DataParallel(torch::nn::Module& module, Ranks ranks)
    : DataParallel(module, std::move(ranks), Options()) {}

DataParallel::~DataParallel() = default;
DataParallel::DataParallel(DataParallel&&) noexcept = default;

void DataParallel::broadcast() {
  if (ranks_.size() == 1) {
    return;
  }
  std::vector<at::Tensor> all = module_.parameters();
  const std::vector<at::Tensor> buffers = module_.buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  World& world = ranks_.world();
  exchange_flat(all, [&](at::Tensor& flat) { world.gradients().broadcast(flat, 0, Purpose::control); });
}

void DataParallel::renew() {
  parameters_ = trained_parameters(module_);
  sync_.reset();  // hooks of the former leave the parameters before those of the next come
  if (!parameters_.empty()) {
    sync_ = ranks_.world().gradient_sync(parameters_, /*after_backward=*/options_.unused_parameters);
  }
}

// Meets the other ranks, for all layers that have not. The mean over the ranks of what this returns is the
// mean over all samples.
at::Tensor DataParallel::weighted(const at::Tensor& loss, std::optional<int64_t> rows) const {
  Meeting& meeting = ranks_.meeting();
  at::Tensor weighted = loss;
  if (rows) {
    const Sizes sizes = meeting.meet({"DataParallel::backward with rows", *rows});
    const auto total = std::accumulate(sizes.rows.begin(), sizes.rows.end(), int64_t{0});
    weighted = loss * (static_cast<double>(*rows * ranks_.size()) /
                       static_cast<double>(std::max<int64_t>(total, 1)));
  } else if (meeting.has_waiting()) {
    meeting.meet({"DataParallel::backward"});
  }
  meeting.merge();
  return weighted;
}

void DataParallel::backward(const at::Tensor& loss, std::optional<int64_t> rows) {
  if (!same_tensors(parameters_, trained_parameters(module_))) {
    renew();  // a strategy, or the program, trains other parameters than before
  }
  if (!sync_) {
    throw Error(Error::Kind::usage, "DataParallel: no parameter of the module needs a gradient");
  }
  try {
    const at::Tensor scaled = ranks_.size() > 1 ? weighted(loss, rows) : loss;
    sync_->before_forward();
    sync_->before_backward();
    const Gradients before = gradients_of(parameters_);
    scaled.backward();
    if (const std::string names = not_reached(module_, parameters_, before); !names.empty()) {
      if (!options_.unused_parameters) {
        throw Error(Error::Kind::usage, "DataParallel: this backward pass has not reached " + names +
                                            "; set unused_parameters, or requires_grad_(false) on them");
      }
      for (const at::Tensor& parameter : parameters_) {
        if (!parameter.grad().defined()) {
          parameter.mutable_grad() = at::zeros_like(parameter);
        }
      }
    }
    sync_->after_backward();
    sync_->exchange();
    // They are views of what was exchanged, which an optimizer's zero_grad() would refuse.
    for (const at::Tensor& parameter : parameters_) {
      parameter.mutable_grad() = parameter.grad().detach();
    }
  } catch (const std::exception& error) {
    const auto* own = dynamic_cast<const Error*>(&error);
    const bool contact = own != nullptr ? own->kind() == Error::Kind::communication : is_lost_contact(error);
    if (!contact) {
      throw;
    }
    throw Error(Error::Kind::communication,
                "rank " + std::to_string(ranks_.rank()) + " of " + std::to_string(ranks_.size()) +
                    ", in the backward pass: " + (own != nullptr ? "" : "lost contact: ") + reason_of(error));
  }
}

void DataParallel::accumulate(const at::Tensor& loss) {
  loss.backward();
}

}  // namespace bnlab
