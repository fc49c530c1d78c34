#include "harness/embed/bnlab/batch_norm.hpp"

#include <torch/types.h>

#include <ostream>
#include <utility>

#include "harness/embed/embedded_site.hpp"

namespace bnlab {

BatchNormImpl::BatchNormImpl(BatchNormOptions given) : options(std::move(given)) {
  if (options.name().empty()) options.name("norm" + std::to_string(options.ranks().next_site()));
  BatchNormImpl::reset();
}

HeldTensor& HeldTensor::operator=(const at::Tensor& tensor) {
  if (layer_ == nullptr)
    put(tensor);
  else
    layer_->take(*this, tensor);
  return *this;
}

void HeldTensor::put(const at::Tensor& tensor) {
  at::Tensor::operator=(tensor);
  known_ = unsafeGetTensorImpl();
}

// As clone() assigns the copies of a module's members.
BatchNormImpl& BatchNormImpl::operator=(const BatchNormImpl& other) {
  Cloneable::operator=(other);
  options = other.options;
  site_ = other.site_;
  hold_tensors();
  return *this;
}

void BatchNormImpl::reset() {
  site_ = std::make_shared<EmbeddedSite>(site_ ? site_->told(options) : options);
  options = site_->options();
  hold_tensors();
}

// The site's tensors are the module's. LibTorch lets nobody write the registry of buffers but as a whole.
void BatchNormImpl::hold_tensors() {
  Module registry(name());
  registry.train(is_training());
  for (const auto& [name, tensor] : site_->buffers()) registry.register_buffer(name, tensor);
  for (const auto& child : named_children()) registry.register_module(child.key(), child.value());
  Module::operator=(registry);
  for (const auto& [name, tensor] : site_->parameters()) parameters_.insert(name, tensor);
  for (const auto& [member, name] :
       {std::pair(&weight, "weight"), std::pair(&bias, "bias"), std::pair(&running_mean, "running_mean"),
        std::pair(&running_var, "running_var"), std::pair(&num_batches_tracked, "num_batches_tracked")}) {
    if (!is_assigned(*member)) {
      const at::Tensor parameter = site_->parameter(name);
      member->layer_ = this;
      member->name_ = name;
      member->put(parameter.defined() ? parameter : site_->buffer(name));
    }
  }
}

void BatchNormImpl::take(HeldTensor& member, const at::Tensor& tensor) {
  site_->replace(member.name_, tensor);
  member.put(tensor);
  hold_tensors();
}

// Through an at::Tensor&, of which the layer does not know yet.
bool BatchNormImpl::is_assigned(const HeldTensor& member) const {
  return member.layer_ == this && member.known_ != member.unsafeGetTensorImpl();
}

// What was written since the last pass.
void BatchNormImpl::follow() {
  const std::lock_guard lock(site_->following());
  site_->follow(options);
  for (HeldTensor* member : {&weight, &bias, &running_mean, &running_var, &num_batches_tracked})
    if (is_assigned(*member)) take(*member, at::Tensor(*member));
}

void BatchNormImpl::reset_parameters() {
  const at::NoGradGuard no_grad;
  reset_running_stats();
  const EmbeddedSite fresh(options);
  for (const auto& [name, tensor] : fresh.parameters()) site_->parameter(name).copy_(tensor);
}

void BatchNormImpl::reset_running_stats() {
  for (const at::Tensor& zero : {running_mean, num_batches_tracked})
    if (zero.defined()) zero.zero_();
  if (running_var.defined()) running_var.fill_(1);
}

at::Tensor BatchNormImpl::forward(const at::Tensor& x, const at::Tensor& residual) {
  follow();
  return site_->forward(is_training(), x, residual);
}

void BatchNormImpl::train(bool on) {
  const bool ends = is_training() && !on;
  Module::train(on);
  if (ends && !site_->options().always_current()) merge();
}

void BatchNormImpl::merge() {
  site_->merge();
}

namespace {

void keep_count_integral(const at::Tensor& count) {
  if (count.defined()) count.set_data(count.to(at::kLong));
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

std::vector<at::Tensor> BatchNormImpl::set_options(BatchNormOptions given) {
  given.name(given.name().empty() ? options.name() : given.name());
  std::vector<at::Tensor> added = site_->set_options(given, /*may_change_tensors=*/true);
  options = site_->options();
  hold_tensors();
  return added;
}

void BatchNormImpl::pretty_print(std::ostream& stream) const {
  stream << std::boolalpha << "bnlab::BatchNorm(" << options.num_features() << ", eps=" << options.eps()
         << ", momentum=";
  if (options.momentum())
    stream << *options.momentum();
  else
    stream << "None";
  stream << ", affine=" << options.affine() << ", track_running_stats=" << options.track_running_stats()
         << ", strategy=" << options.strategy() << ", ranks=" << options.ranks().size()
         << (options.relu() ? ", relu=true)" : ")");
}

}  // namespace bnlab
