#include "harness/embed/bnlab/data_parallel.hpp"

#include <torch/nn/modules/embedding.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <sstream>
#include <string>
#include <unordered_set>
#include <utility>

#include "harness/communicator/reason.hpp"
#include "harness/communicator/world.hpp"
#include "harness/embed/meeting.hpp"
#include "harness/error.hpp"
#include "harness/mapped.hpp"

namespace bnlab {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(Error::Kind::usage, "DataParallel: " + message);
}

// Modules may share a parameter, which then is here once.
std::vector<at::Tensor> trained_parameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> trained = module.parameters();
  std::unordered_set<const c10::TensorImpl*> seen;
  std::erase_if(trained, [&](const at::Tensor& p) {
    return !p.requires_grad() || !seen.insert(p.unsafeGetTensorImpl()).second;
  });
  return trained;
}

bool same_tensors(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::ranges::equal(a, b, [](const at::Tensor& x, const at::Tensor& y) { return x.is_same(y); });
}

// All that has to be the same on every rank. Strides of dimensions of one element say nothing.
std::string described(const std::string& name, const at::Tensor& t) {
  std::ostringstream text;
  text << name << " (" << t.scalar_type() << ' ' << t.sizes();
  if (t.layout() == at::kStrided) {
    std::vector<int64_t> strides = t.strides().vec();
    for (size_t d = 0; d < strides.size(); ++d) {
      strides[d] = t.sizes()[d] == 1 || t.numel() == 0 ? 1 : strides[d];
    }
    text << ", strides " << at::IntArrayRef(strides);
  }
  text << ", " << t.layout() << ", " << c10::DeviceTypeName(t.device().type(), /*lower_case=*/true)
       << (t.requires_grad() ? ", with a gradient)" : ")");
  return text.str();
}

void refuse_sparse_gradients_of(const torch::nn::Module& module, const std::string& prefix) {
  const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(&module);
  const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(&module);
  if ((embedding != nullptr && embedding->options.sparse() && embedding->weight.requires_grad()) ||
      (bag != nullptr && bag->options.sparse() && bag->weight.requires_grad())) {
    refuse("the gradient of " + prefix +
           "weight is sparse, and sparse gradients are not exchanged; make the embedding with sparse(false)");
  }
}

void refuse_what_is_not_exchanged(const torch::nn::Module& module) {
  refuse_sparse_gradients_of(module, "");
  for (const auto& child : module.named_modules("", /*include_self=*/false)) {
    refuse_sparse_gradients_of(*child.value(), child.key() + ".");
  }
  std::optional<at::Device> device;
  for (const auto& named : module.named_parameters()) {
    const at::Tensor& p = named.value();
    const char* kind = p.layout() != at::kStrided                  ? "sparse"
                       : p.is_complex()                            ? "complex"
                       : !p.is_floating_point()                    ? "of integers"
                       : device.value_or(p.device()) != p.device() ? "on another device than those before it"
                                                                   : nullptr;
    if (kind != nullptr) {
      refuse("parameter " + named.key() + " is " + kind +
             ", and what is exchanged are dense floating-point parameters on one device; what is not trained "
             "may be a buffer");
    }
    device = p.device();
  }
  for (const auto& named : module.named_buffers()) {
    if (named.value().layout() != at::kStrided) {
      refuse("buffer " + named.key() + " is sparse, and sparse tensors are not exchanged");
    }
  }
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

void DataParallel::check_module() const {
  if (ranks_.size() > 1) {
    std::vector<std::string> tensors;
    for (const auto& named : module_.named_parameters()) {
      tensors.push_back(described("parameter " + named.key(), named.value()));
    }
    for (const auto& named : module_.named_buffers()) {
      tensors.push_back(described("buffer " + named.key(), named.value()));
    }
    ranks_.meeting().require_same("DataParallel: the module is not the same on all ranks", tensors);
  }
  refuse_what_is_not_exchanged(module_);
}

void DataParallel::broadcast() {
  check_module();
  if (ranks_.size() == 1) {
    return;
  }
  std::vector<at::Tensor> all = module_.parameters();
  const std::vector<at::Tensor> buffers = module_.buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  World& world = ranks_.world();
  exchange_flat(all, [&](at::Tensor& flat) {
    at::Tensor bytes = flat.view(at::kByte);  // of any type
    world.gradients().broadcast(bytes, 0, Purpose::control);
  });
}

void DataParallel::renew() {
  sync_.reset();  // hooks of the former leave the parameters before those of the next come
  check_module();
  parameters_ = trained_parameters(module_);
  if (parameters_.empty()) {
    refuse("no parameter of the module needs a gradient");
  }
  sync_ = ranks_.world().gradient_sync(parameters_, /*after_backward=*/options_.unused_parameters);
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
