// LibTorch's operators on simulated devices: for the dispatch key CUDA every operator of ATen runs the
// CPU's kernel over the same memory, as work on the current stream. Memory, streams, events, copies between
// host and device, autograd and the process groups are LibTorch's own.
#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/copy_native.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/simgpu/call.hpp"
#include "tests/simgpu/simgpu.hpp"

namespace simgpu {
namespace {

using torch::jit::Stack;

// The form of what these return depends on values.
bool depends_on_values(const std::string& name) {
  static const auto& names = *new std::set<std::string>{"aten::nonzero",
                                                        "aten::masked_select",
                                                        "aten::_unique",
                                                        "aten::_unique2",
                                                        "aten::unique_dim",
                                                        "aten::unique_consecutive",
                                                        "aten::bincount",
                                                        "aten::repeat_interleave",
                                                        "aten::unique_dim_consecutive",
                                                        "aten::equal",
                                                        "aten::is_nonzero",
                                                        "aten::histc",
                                                        "aten::argwhere",
                                                        "aten::linalg_eigvals",
                                                        "aten::allclose",
                                                        "aten::_local_scalar_dense",
                                                        "aten::is_set_to"};
  return names.count(name) > 0;
}

// Of each call of which the results had to be known before it was done.
class KnownResults {
 public:
  Results of(const Call& call, const c10::FunctionSchema& schema) {
    const std::string key = call.key();
    {
      const std::lock_guard lock(mutex_);
      const auto found = known_.find(key);
      if (found != known_.end()) return found->second;
    }
    Results results;
    {
      const KernelsOnly kernels_only;
      results = describe(schema, call.run(/*blank=*/true));
    }
    const std::lock_guard lock(mutex_);
    return known_[key] = results;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, Results> known_;
};

KnownResults& known_results() {
  static auto& known = *new KnownResults;
  return known;
}

bool poisons() {
  static const bool wanted = (late() || watches_races()) && std::string(setting("SIMGPU_POISON", "1")) != "0";
  return wanted;
}

// What the caching allocator takes back is filled with NaN, in the order of its stream: whoever still reads
// it on another stream, without record_stream or an event, gets that. A capture records it for memory of its
// own alone, since what is from elsewhere is in other hands when the graph is replayed.
void poison_freed_blocks() {
  static std::atomic<bool> attached{false};
  if (!poisons() || attached.exchange(true)) return;
  using Entry = c10::cuda::CUDACachingAllocator::TraceEntry;
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([](const Entry& entry) {
    const auto stream = static_cast<cudaStream_t>(entry.stream_);
    const bool of_a_graph = entry.mempool_.first != 0 || entry.mempool_.second != 0;
    if (entry.action_ == Entry::FREE_COMPLETED && (of_a_graph || !capturing(stream))) {
      void* const block = reinterpret_cast<void*>(entry.addr_);
      const size_t bytes = entry.size_;
      (void)enqueue(stream, Sort::give_back, "giving memory back",
                    once([block, bytes] { std::memset(block, 0xff, bytes); }), {{block, bytes, true}});
    }
  });
}

// LibTorch's allocator of pinned memory, which tells nobody what it does. Memory is filled with NaN when it
// is taken again, and when it is given back where no stream has been named that uses it.
class PoisonedPinned : public at::HostAllocator {
 public:
  explicit PoisonedPinned(at::HostAllocator& inner) : inner_(inner) {}

  at::DataPtr allocate(size_t size) override {
    at::DataPtr data = inner_.allocate(size);
    void* const first = data.get();
    if (first == nullptr) return data;
    host_takes(first, size);
    std::memset(first, 0xff, size);
    auto* const lent = new Lent{std::move(data), size, {}};
    const std::lock_guard lock(mutex());
    all()[first] = lent;
    return {first, lent, &give_back, at::kCPU};
  }

  bool record_event(void* address, void*, c10::Stream stream) override {
    const std::lock_guard lock(mutex());
    auto found = all().upper_bound(address);
    if (found == all().begin() || static_cast<char*>((--found)->first) + found->second->size <= address)
      return false;
    const auto& [first, lent] = *found;
    lent->streams.push_back(stream);
    return inner_.record_event(first, lent->data.get_context(), stream);
  }

  void empty_cache() override { inner_.empty_cache(); }
  at::HostStats get_stats() override { return inner_.get_stats(); }
  void reset_accumulated_stats() override { inner_.reset_accumulated_stats(); }
  void reset_peak_stats() override { inner_.reset_peak_stats(); }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    inner_.copy_data(to, from, bytes);
  }
  void begin_allocate_to_pool(c10::MempoolId_t id, std::function<bool(c10::Stream)> filter) override {
    inner_.begin_allocate_to_pool(id, std::move(filter));
  }
  void end_allocate_to_pool(c10::MempoolId_t id) override { inner_.end_allocate_to_pool(id); }
  void release_pool(c10::MempoolId_t id) override { inner_.release_pool(id); }

 private:
  struct Lent {
    at::DataPtr data;
    size_t size;
    std::vector<c10::Stream> streams;
  };
  static std::map<void*, Lent*>& all() {
    static auto& all = *new std::map<void*, Lent*>;
    return all;
  }
  static std::mutex& mutex() {
    static auto& mutex = *new std::mutex;
    return mutex;
  }
  static void give_back(void* context) {
    const std::unique_ptr<Lent> lent(static_cast<Lent*>(context));
    void* const first = lent->data.get();
    const bool recorded =
        std::ranges::any_of(lent->streams, [](c10::Stream s) { return capturing(c10::cuda::CUDAStream(s)); });
    if (lent->streams.empty() || recorded) {  // LibTorch never lends again what a recording has taken
      host_gives_back(first, lent->size);
      std::memset(first, 0xff, lent->size);
    }
    const std::lock_guard lock(mutex());
    all().erase(first);
  }

  at::HostAllocator& inner_;
};

// Of the first tensor that lies on one; else one that is given; else the current one.
at::Device device_of(const Stack& stack, size_t first) {
  std::optional<at::Device> device;
  const auto look = [&](const at::Tensor& tensor) {
    if (!device && tensor.defined() && tensor.is_cuda()) device = tensor.device();
  };
  for (size_t i = first; i < stack.size() && !device; ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor())
      look(value.toTensor());
    else if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) look(tensor);
    else if (value.isOptionalTensorList())
      for (const auto& tensor : value.toOptionalTensorVector()) look(tensor.value_or(at::Tensor()));
    else if (value.isDevice() && value.toDevice().is_cuda())
      device = value.toDevice();
  }
  return device && device->index() >= 0 ? *device : at::Device(at::kCUDA, c10::cuda::current_device());
}

// The kernel of every operator for the key CUDA.
void redirect(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  static const bool tell = std::getenv("SIMGPU_OPS") != nullptr;
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size(), first = stack->size() - count;
  const at::Device device = device_of(*stack, first);
  const c10::cuda::CUDAGuard guard(device);
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  const bool is_deferred = deferred(stream);
  const std::string name =
      schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  if (tell) std::fprintf(stderr, "simgpu operator %s\n", name.c_str());
  poison_freed_blocks();

  const auto call = std::make_shared<Call>(op);
  bool has_out = false;
  for (size_t i = 0; i < count; ++i) {
    call->add((*stack)[first + i], is_deferred);
    has_out = has_out || schema.arguments()[i].is_out();
  }
  const bool depends = depends_on_values(schema.name()) || call->indexes_by_mask();
  if (depends && is_deferred) C10_CUDA_CHECK(cudaStreamSynchronize(stream));

  Results results;
  if ((is_deferred && !depends) || has_out) {
    results = known_results().of(*call, schema);
    if (results.has_values && is_deferred) C10_CUDA_CHECK(cudaStreamSynchronize(stream));
    for (const auto& [argument, form] : results.outs) {
      at::Tensor out = (*stack)[first + argument].toTensor();
      if (out.sizes() != at::IntArrayRef(form.sizes)) out.resize_(form.sizes);
      call->set_out(argument, out);
    }
  }
  const bool now = !is_deferred || depends || results.has_values;
  Stack done;
  if (now) {
    const KernelsOnly kernels_only;
    done = call->run();
    results = describe(schema, done);
  }

  Stack returned;
  std::vector<Place> places;  // of new tensors
  const auto fresh = [&](const Form& form) {
    if (!form.defined) return at::Tensor();
    at::Tensor made =
        at::empty_strided(form.sizes, form.strides, at::TensorOptions().dtype(form.type).device(device));
    places.emplace_back(made);
    return made;
  };
  for (size_t r = 0; r < results.all.size(); ++r) {
    const Result& result = results.all[r];
    switch (result.kind) {
      case Result::Kind::argument:
        returned.push_back((*stack)[first + result.argument]);
        break;
      case Result::Kind::tensor:
        returned.emplace_back(fresh(result.forms[0]));
        break;
      case Result::Kind::tensors: {
        std::vector<at::Tensor> list;
        for (const Form& form : result.forms) list.push_back(fresh(form));
        returned.emplace_back(std::move(list));
        break;
      }
      case Result::Kind::other:
        returned.push_back(done.at(r));
        break;
    }
  }
  // What has been done is work, too, so that it is counted.
  std::vector<Access> accesses;
  if (watches_races()) {
    accesses = call->accesses();
    for (const Place& place : places) place.add_to(accesses, /*writes=*/true);
  }
  const auto work = [call, results, places, done, now] {
    const KernelsOnly kernels_only;
    store(results, now ? done : call->run(), places);
  };
  C10_CUDA_CHECK(enqueue(stream, Sort::kernel, name, once(work), std::move(accesses)));
  torch::jit::drop(*stack, count);
  for (c10::IValue& value : returned) stack->push_back(std::move(value));
}

// Between host and device LibTorch's own copy, within the devices the CPU's.
at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  if (!self.is_cuda() || !from.is_cuda()) return at::native::copy_(self, from, non_blocking);
  if (self.numel() == 0) return self;
  const c10::cuda::CUDAGuard guard(from.device());
  const Place to(self), source(from.sizes() == self.sizes() ? from : from.expand(self.sizes()));
  if (self.device() != from.device()) C10_CUDA_CHECK(cudaDeviceSynchronize());
  const auto work = [to, source] {
    const KernelsOnly kernels_only;
    at::Tensor target = to.view();
    at::native::copy_(target, source.view(), false);
  };
  std::vector<Access> accesses;
  source.add_to(accesses, /*writes=*/false);
  to.add_to(accesses, /*writes=*/true);
  C10_CUDA_CHECK(enqueue(c10::cuda::getCurrentCUDAStream(), Sort::kernel, "aten::copy_", once(work),
                         std::move(accesses)));
  return self;
}

// The cell of an LSTM, an operator that the CPU does not have. Gates are [in, forget, cell, out].
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell(const at::Tensor& input, const at::Tensor& hidden,
                                                         const at::Tensor& cx,
                                                         const std::optional<at::Tensor>& input_bias,
                                                         const std::optional<at::Tensor>& hidden_bias) {
  at::Tensor gates = input + hidden;
  if (input_bias && input_bias->defined()) gates = gates + *input_bias + *hidden_bias;
  const auto parts = gates.chunk(4, 1);
  const at::Tensor i = parts[0].sigmoid(), f = parts[1].sigmoid(), g = parts[2].tanh(),
                   o = parts[3].sigmoid();
  const at::Tensor cy = f * cx + i * g;
  return {o * cy.tanh(), cy, at::cat({i, f, g, o}, 1)};
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_cell_backward(const std::optional<at::Tensor>& grad_hy,
                                                                  const std::optional<at::Tensor>& grad_cy,
                                                                  const at::Tensor& cx, const at::Tensor& cy,
                                                                  const at::Tensor& workspace,
                                                                  bool has_bias) {
  const auto parts = workspace.chunk(4, 1);
  const at::Tensor &i = parts[0], &f = parts[1], &g = parts[2], &o = parts[3], tanh = cy.tanh();
  const at::Tensor grad_h = grad_hy && grad_hy->defined() ? *grad_hy : at::zeros_like(cy);
  at::Tensor grad_c = grad_h * o * (1 - tanh * tanh);
  if (grad_cy && grad_cy->defined()) grad_c = grad_c + *grad_cy;
  const at::Tensor gates = at::cat({grad_c * g * i * (1 - i), grad_c * cx * f * (1 - f),
                                    grad_c * i * (1 - g * g), grad_h * tanh * o * (1 - o)},
                                   1);
  return {gates, grad_c * f, has_bias ? gates.sum(0) : at::Tensor()};
}

// Operators that stay LibTorch's own: they make or describe tensors and launch nothing, or nobody uses them
// here.
bool stays(const c10::OperatorHandle& op) {
  static const auto& names = *new std::set<std::string>{"empty",
                                                        "empty_strided",
                                                        "resize_",
                                                        "resize_as_",
                                                        "set_",
                                                        "as_strided",
                                                        "as_strided_",
                                                        "record_stream",
                                                        "_local_scalar_dense",
                                                        "is_pinned",
                                                        "_pin_memory",
                                                        "_reshape_alias",
                                                        "_efficientzerotensor",
                                                        "_resize_output_",
                                                        "is_set_to",
                                                        "view",
                                                        "detach",
                                                        "alias",
                                                        "lift",
                                                        "lift_fresh",
                                                        "_copy_from",
                                                        "_copy_from_and_resize",
                                                        "_thnn_fused_lstm_cell",
                                                        "_thnn_fused_lstm_cell_backward_impl",
                                                        "view_as_real",
                                                        "view_as_complex",
                                                        "unfold",
                                                        "_to_copy",
                                                        "clone",
                                                        "contiguous",
                                                        "copy_"};
  const c10::FunctionSchema& schema = op.schema();
  const std::string name = schema.name().substr(std::strlen("aten::"));
  for (const char* part : {"cudnn_", "miopen_", "_nested", "sparse", "quantize"})
    if (name.find(part) != std::string::npos) return true;
  for (const c10::Argument& returned : schema.returns())
    if (returned.alias_info() != nullptr && !returned.alias_info()->isWrite()) return true;  // a view
  return names.count(name) > 0;
}

bool has_cuda_kernel(const c10::OperatorHandle& op) {
  static const auto& composite =
      *new std::set<std::string>{"aten::convolution", "aten::convolution_backward", "aten::_convolution",
                                 "aten::convolution_overrideable"};
  return op.hasKernelForDispatchKey(c10::DispatchKey::CUDA) || composite.count(op.schema().name()) > 0;
}

struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}  // that an operator has another kernel already
};

class Redirection {
 public:
  Redirection() {
    Silent silent;
    const c10::WarningUtils::WarningHandlerGuard quiet(&silent);
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (name.name.rfind("aten::", 0) == 0 && op && has_cuda_kernel(*op) && !stays(*op)) {
        const std::string plain = name.name.substr(std::strlen("aten::"));
        library_.impl((plain + (name.overload_name.empty() ? "" : "." + name.overload_name)).c_str(),
                      torch::CppFunction::makeFromBoxedFunction<&redirect>());
      }
    }
    library_.impl("_thnn_fused_lstm_cell", torch::CppFunction::makeFromUnboxedFunction(&lstm_cell));
    library_.impl("_thnn_fused_lstm_cell_backward_impl",
                  torch::CppFunction::makeFromUnboxedFunction(&lstm_cell_backward));
    library_.impl("copy_", torch::CppFunction::makeFromUnboxedFunction(&copy));
    at::globalContext().setUserEnabledCuDNN(false);
  }

 private:
  torch::Library library_{torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__};
};

// LibTorch's libraries have registered their kernels by the time that this library is loaded.
const bool redirected = [] {
  if (device_count() > 0) {
    static auto& redirection = *new Redirection;
    (void)redirection;
    if (poisons())
      at::setHostAllocator(at::kCUDA, new PoisonedPinned(*at::getHostAllocator(at::kCUDA)), /*priority=*/1);
  }
  return true;
}();

}  // namespace
}  // namespace simgpu
