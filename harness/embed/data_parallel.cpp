#include "harness/embed/bnlab/data_parallel.hpp"

#include <torch/csrc/autograd/autograd.h>
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
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

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

std::string name_of(const torch::nn::Module& module, const at::Tensor& parameter) {
  for (const auto& named : module.named_parameters())
    if (named.value().is_same(parameter)) return named.key();
  return "a parameter";
}

bool is_laid_out_alike(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device() && a.sizes() == b.sizes() &&
         a.strides() == b.strides();
}

// All that has to be the same on every rank. Strides of dimensions of one element say nothing.
std::string described(const std::string& name, const at::Tensor& t) {
  std::ostringstream text;
  text << name << " (" << t.scalar_type() << ' ' << t.sizes();
  if (t.layout() == at::kStrided) {
    std::vector<int64_t> strides = t.strides().vec();
    for (size_t d = 0; d < strides.size(); ++d)
      strides[d] = t.sizes()[d] == 1 || t.numel() == 0 ? 1 : strides[d];
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
  for (const auto& child : module.named_modules("", /*include_self=*/false))
    refuse_sparse_gradients_of(*child.value(), child.key() + ".");
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
  for (const auto& named : module.named_buffers())
    if (named.value().layout() != at::kStrided)
      refuse("buffer " + named.key() + " is sparse, and sparse tensors are not exchanged");
}

void check(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1 || !loss.is_floating_point()) {
    std::ostringstream got;
    if (loss.defined()) got << loss.scalar_type() << ' ' << loss.sizes();
    refuse("expected a loss of one real number, got " + (loss.defined() ? got.str() : "none") +
           "; take its mean or its sum");
  }
  if (!loss.requires_grad()) refuse("the loss depends on no tensor that needs a gradient");
}

// The gradients as they are, and how often each has been written.
using Gradients = std::vector<std::pair<at::Tensor, int64_t>>;

Gradients gradients_of(const std::vector<at::Tensor>& parameters) {
  return mapped(parameters, [](const at::Tensor& parameter) {
    const at::Tensor& grad = parameter.grad();
    return std::pair(grad, grad.defined() ? static_cast<int64_t>(grad._version()) : 0);
  });
}

// Those whose gradients nobody has written since.
std::vector<at::Tensor> not_reached(const std::vector<at::Tensor>& parameters, const Gradients& before) {
  const Gradients now = gradients_of(parameters);
  std::vector<at::Tensor> those;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (now[i].first.is_same(before[i].first) && now[i].second == before[i].second)
      those.push_back(parameters[i]);
  return those;
}

bool has_sparse_gradient(const at::Tensor& parameter) {
  return parameter.grad().defined() && parameter.grad().layout() != at::kStrided;
}

bool is_of_contact(const std::exception& error) {
  const auto* own = dynamic_cast<const Error*>(&error);
  return own != nullptr ? own->kind() == Error::Kind::communication : is_lost_contact(error);
}

}  // namespace

// How the gradients of parameters_ become their mean, from the time when it was made.
struct DataParallel::Exchange {
  std::vector<at::Tensor> as_they_were;  // the parameters, detached
  // The ranks tell each other how a pass went by a gradient of this, which travels with the others: for each
  // parameter whether it has a gradient here, and for each rank whether its pass has failed. Undefined where
  // nothing is told: in a world of one, and on GPUs, whose gradients nobody waits for, unless some may be
  // missing.
  at::Tensor told;
  bool all_reached = true;  // whether all parameters had a gradient here, in the last pass
  std::unique_ptr<GradientSync> sync;
  std::vector<at::Tensor> handed_out;  // the gradients of the last pass
};

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
    for (const auto& named : module_.named_parameters())
      tensors.push_back(described("parameter " + named.key(), named.value()));
    for (const auto& named : module_.named_buffers())
      tensors.push_back(described("buffer " + named.key(), named.value()));
    ranks_.meeting().require_same("DataParallel: the module is not the same on all ranks", tensors);
  }
  refuse_what_is_not_exchanged(module_);
}

void DataParallel::broadcast() {
  check_module();
  if (ranks_.size() == 1) return;
  std::vector<at::Tensor> all = module_.parameters();
  const std::vector<at::Tensor> buffers = module_.buffers();
  all.insert(all.end(), buffers.begin(), buffers.end());
  World& world = ranks_.world();
  exchange_flat(all, [&](at::Tensor& flat) {
    at::Tensor bytes = flat.view(at::kByte);
    world.gradients().broadcast(bytes, 0, Purpose::control);
  });
}

void DataParallel::renew() {
  exchange_.reset();  // hooks of the former leave the parameters before those of the next come
  check_module();
  parameters_ = trained_parameters(module_);
  if (parameters_.empty()) refuse("no parameter of the module needs a gradient");
  auto exchange = std::make_unique<Exchange>();
  exchange->as_they_were = mapped(parameters_, [](const at::Tensor& p) { return p.detach(); });
  std::vector<at::Tensor> exchanged = parameters_;
  const at::Tensor& first = parameters_.front();
  if (ranks_.size() > 1 && (first.is_cpu() || options_.unused_parameters)) {
    const auto numbers = static_cast<int64_t>(parameters_.size()) + ranks_.size();
    exchange->told = at::zeros({numbers}, first.options()).requires_grad_();
    exchanged.insert(exchanged.begin(), exchange->told);  // so that it is in the last bucket
  }
  exchange->sync = ranks_.world().gradient_sync(exchanged, /*after_backward=*/options_.unused_parameters);
  exchange_ = std::move(exchange);
}

bool DataParallel::is_as_it_was() const {
  const std::vector<at::Tensor> now = trained_parameters(module_);
  return exchange_ && std::ranges::equal(now, parameters_, std::mem_fn(&at::Tensor::is_same)) &&
         std::ranges::equal(now, exchange_->as_they_were, is_laid_out_alike);
}

// Meets the other ranks, for all layers that have not. The mean over the ranks of the losses times what this
// returns is the mean over all samples.
double DataParallel::meet(std::optional<int64_t> rows, bool anew) const {
  Meeting& meeting = ranks_.meeting();
  double weight = 1;
  if (rows || anew || meeting.has_waiting()) {
    const Sizes sizes =
        meeting.meet({std::string("DataParallel::backward") + (rows ? " with rows" : "") +
                          (anew ? " and other parameters than before, or after an error" : ""),
                      rows.value_or(0)});
    if (std::ranges::min(sizes.rows) < 0)
      refuse("expected a number of rows, got " + std::to_string(std::ranges::min(sizes.rows)));
    const auto total = std::accumulate(sizes.rows.begin(), sizes.rows.end(), int64_t{0});
    if (rows)
      weight = static_cast<double>(*rows * ranks_.size()) / static_cast<double>(std::max<int64_t>(total, 1));
  }
  meeting.merge();
  return weight;
}

void DataParallel::backward(const at::Tensor& loss, std::optional<int64_t> rows) {
  const bool anew = !is_as_it_was();
  bool has_met = false;
  try {
    const double weight = ranks_.size() > 1 ? meet(rows, anew) : 1;
    has_met = true;
    if (anew) renew();
    keep_handed_out();
    exchange_->sync->before_forward();
    exchange_->sync->before_backward();
    const std::exception_ptr failure = pass(loss, weight);
    exchange_->sync->after_backward();
    exchange_->sync->exchange();
    listen(failure);
    hand_out();
  } catch (const std::exception& error) {
    if (has_met) {  // on all ranks
      drop_gradients(parameters_);
      exchange_.reset();
    }
    if (!is_of_contact(error)) throw;
    const bool own = dynamic_cast<const Error*>(&error) != nullptr;
    throw Error(Error::Kind::communication,
                "rank " + std::to_string(ranks_.rank()) + " of " + std::to_string(ranks_.size()) +
                    ", in the backward pass: " + (own ? "" : "lost contact: ") + reason_of(error));
  }
}

// The backward pass here, after which every parameter has a gradient to exchange. What it failed by is
// returned where the ranks tell each other, and thrown elsewhere.
std::exception_ptr DataParallel::pass(const at::Tensor& loss, double weight) {
  const at::Tensor& told = exchange_->told;
  const Gradients before = gradients_of(parameters_);
  std::exception_ptr failure;
  try {
    check(loss);
    try {
      (weight == 1 ? loss : loss * weight).backward();
    } catch (const std::exception&) {
      refuse_sparse_gradients();  // which c10d's Reducer does not take either
      throw;
    }
    refuse_sparse_gradients();
    refuse_missing(not_reached(parameters_, before));
  } catch (const std::exception& error) {
    // A rank whose layers wait for those of this one would take what is told for their exchange.
    const bool layers_exchange = ranks_.traffic("statistics").exchanges > 0;
    if (!told.defined() || !told.is_cpu() || layers_exchange || is_of_contact(error)) throw;
    failure = std::current_exception();
  }
  if (told.defined()) {
    try {
      tell(not_reached(parameters_, before), failure != nullptr);
    } catch (const std::exception&) {
      if (failure) std::rethrow_exception(failure);
      throw;
    }
  }
  return failure;
}

void DataParallel::refuse_missing(const std::vector<at::Tensor>& missing) const {
  std::string names;
  for (const at::Tensor& parameter : missing)
    names += (names.empty() ? "" : ", ") + name_of(module_, parameter);
  if (!names.empty() && !options_.unused_parameters) {
    refuse("this backward pass has not reached " + names +
           "; set unused_parameters, or requires_grad_(false) on them");
  }
}

void DataParallel::refuse_sparse_gradients() const {
  for (const at::Tensor& parameter : parameters_) {
    if (has_sparse_gradient(parameter)) {
      refuse("the gradient of " + name_of(module_, parameter) +
             " is sparse, and sparse gradients are not exchanged");
    }
  }
}

// Gradients of zero where there are none, and what is told, arrive as those of the backward pass have.
void DataParallel::tell(const std::vector<at::Tensor>& missing, bool failed) {
  std::vector<double> report =
      mapped(parameters_, [](const at::Tensor& p) { return p.grad().defined() ? 1. : 0.; });
  exchange_->all_reached = std::ranges::count(report, 0.) == 0;
  report.resize(static_cast<size_t>(exchange_->told.numel()), 0);
  report[parameters_.size() + static_cast<size_t>(ranks_.rank())] = failed ? 1 : 0;
  std::vector<at::Tensor> arrive{exchange_->told};
  std::vector<at::Tensor> gradients{at::tensor(report, at::kDouble).to(exchange_->told.options())};
  for (const at::Tensor& parameter : missing) {
    arrive.push_back(parameter);
    gradients.push_back(at::zeros_like(parameter));
  }
  for (const at::Tensor& parameter : parameters_)
    if (has_sparse_gradient(parameter)) parameter.mutable_grad() = at::zeros_like(parameter);
  torch::autograd::backward(arrive, gradients);
}

// Throws where a pass has failed, on every rank. A parameter that has no gradient on any rank keeps none.
void DataParallel::listen(const std::exception_ptr& failure) {
  if (!exchange_->told.defined()) return;
  const at::Tensor heard = std::exchange(exchange_->told.mutable_grad(), at::Tensor());
  if (!heard.is_cpu() && exchange_->all_reached)
    return;  // nothing to learn that would be worth waiting for the device
  const at::Tensor means = heard.to(at::kCPU, at::kDouble);
  const double* mean = means.const_data_ptr<double>();
  std::string failed;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (*mean++ == 0) parameters_[i].mutable_grad() = at::Tensor();
  for (int r = 0; r < ranks_.size(); ++r)
    if (*mean++ > 0) failed += (failed.empty() ? "" : ", ") + std::to_string(r);
  if (!failed.empty()) {
    if (failure) std::rethrow_exception(failure);
    throw Error(Error::Kind::communication,
                "it has failed on rank " + failed + ", and no rank has its gradients");
  }
}

// What an earlier pass has handed out is a view of what the next exchanges.
void DataParallel::keep_handed_out() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < exchange_->handed_out.size(); ++i) {
    at::Tensor& gradient = exchange_->handed_out[i];
    if (gradient.defined() && gradient.use_count() > (parameters_[i].grad().is_same(gradient) ? 2 : 1))
      gradient.set_data(gradient.clone());  // the program has it
  }
  exchange_->handed_out.clear();
}

// An optimizer's zero_grad() would refuse views.
void DataParallel::hand_out() {
  for (const at::Tensor& parameter : parameters_) {
    if (parameter.grad().defined()) parameter.mutable_grad() = parameter.grad().detach();
    if (ranks_.size() > 1) exchange_->handed_out.push_back(parameter.grad());
  }
}

void DataParallel::accumulate(const at::Tensor& loss) {
  check(loss);
  loss.backward();
}

}  // namespace bnlab
