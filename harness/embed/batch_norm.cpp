#include "harness/embed/bnlab/batch_norm.hpp"

#include <torch/types.h>

#include <ostream>
#include <utility>

#include "harness/embed/embedded_site.hpp"

namespace bnlab {

BatchNormImpl::BatchNormImpl(BatchNormOptions given) : options(std::move(given)) {
  if (options.name().empty()) {
    options.name("norm" + std::to_string(options.ranks().next_site()));
  }
  BatchNormImpl::reset();
}

void BatchNormImpl::reset() {
  site_ = std::make_shared<EmbeddedSite>(options);
  options = site_->options();
  for (const auto& [name, tensor] : site_->parameters()) {
    register_parameter(name, tensor);
  }
  weight = site_->parameter("weight");
  bias = site_->parameter("bias");
  running_mean = running_var = num_batches_tracked = at::Tensor();
  if (site_->keeps_statistics()) {
    for (const auto& [name, tensor] : site_->buffers()) {
      register_buffer(name, tensor);
    }
    running_mean = site_->buffer("running_mean");
    running_var = site_->buffer("running_var");
    num_batches_tracked = register_buffer("num_batches_tracked", site_->tracked());
  }
}

void BatchNormImpl::reset_parameters() {
  const at::NoGradGuard no_grad;
  reset_running_stats();
  const EmbeddedSite fresh(options);
  for (const auto& [name, tensor] : fresh.parameters()) {
    site_->parameter(name).copy_(tensor);
  }
}

void BatchNormImpl::reset_running_stats() {
  for (const at::Tensor& zero : {running_mean, num_batches_tracked}) {
    if (zero.defined()) {
      zero.zero_();
    }
  }
  if (running_var.defined()) {
    running_var.fill_(1);
  }
}

at::Tensor BatchNormImpl::forward(const at::Tensor& x, const at::Tensor& residual) {
  return site_->forward(is_training(), x, residual);
}

void BatchNormImpl::train(bool on) {
  const bool ends = is_training() && !on;
  Module::train(on);
  if (ends && !options.always_current()) {
    merge();
  }
}

void BatchNormImpl::merge() {
  site_->merge();
}

namespace {

void keep_count_integral(const at::Tensor& count) {
  if (count.defined()) {
    count.set_data(count.to(at::kLong));
  }
}

}  // namespace

void BatchNormImpl::to(at::Device device, at::ScalarType dtype, bool non_blocking) {
  Module::to(device, statistics_type(dtype), non_blocking);
  keep_count_integral(num_batches_tracked);
}

void BatchNormImpl::to(at::ScalarType dtype, bool non_blocking) {
  Module::to(statistics_type(dtype), non_blocking);
  keep_count_integral(num_batches_tracked);
}

void BatchNormImpl::to(at::Device device, bool non_blocking) {
  Module::to(device, non_blocking);
}

void BatchNormImpl::set_options(BatchNormOptions given) {
  given.name(given.name().empty() ? options.name() : given.name());
  BatchNormImpl fresh(std::move(given));
  const auto take = [](const auto& before, auto mine) {
    for (auto& item : mine) {
      const at::Tensor* old = before.find(item.key());
      if (old != nullptr && old->sizes() == item.value().sizes()) {
        item.value().set_data(old->detach());
      }
    }
  };
  take(named_parameters(), fresh.named_parameters());
  take(named_buffers(), fresh.named_buffers());
  for (auto& item : fresh.named_parameters()) {
    if (site_->parameter(item.key()).defined()) {
      item.value().requires_grad_(site_->wants_gradient(item.key()));
    }
  }
  fresh.train(is_training());
  *this = fresh;
}

void BatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "bnlab::BatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", momentum=";
  if (options.momentum()) {
    stream << *options.momentum();
  } else {
    stream << "None";
  }
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats()
         << ", strategy=" << options.strategy() << ", ranks=" << options.ranks().size()
         << (options.relu() ? ", relu=true)" : ")");
}

}  // namespace bnlab
