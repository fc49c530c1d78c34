// What strategies/kernels uses of LibTorch and of harness/activation.hpp, in a form that compiles in a
// second: dense or strided tensors, all of them on the emulated GPU. Fresh memory is NaN in every dtype. The
// texts of error messages are not kept.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace emulation {
int64_t stream();  // device.hpp
}

namespace c10 {

template <class... Parts>
std::string str(const Parts&...) {
  return "refused";
}
template <class Items>
std::string Join(const char*, const Items&) {
  return {};
}

struct DeviceGuard {
  template <class Device>
  explicit DeviceGuard(const Device&) {}
};

namespace cuda {
struct CUDAStream {
  int64_t device_index() const { return 0; }
  int64_t id() const { return emulation::stream(); }
};
inline CUDAStream getCurrentCUDAStream() {
  return {};
}
}  // namespace cuda

}  // namespace c10

#define TORCH_CHECK(condition, ...) \
  if (!(condition)) throw std::runtime_error(#condition)
#define TORCH_INTERNAL_ASSERT(condition) TORCH_CHECK(condition)

namespace at {

// A number of 16 bits: rounded to nearest, ties to even.
template <int kExponentBits, int kFractionBits>
struct Narrow {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kOne = 1 << kFractionBits;
  static constexpr int kInfinity = ((1 << kExponentBits) - 1) << kFractionBits;

  uint16_t bits;

  Narrow() = default;
  Narrow(float value) {
    const float size = std::fabs(value);
    int magnitude = kInfinity + (std::isnan(value) ? kOne / 2 : 0);
    if (std::isfinite(value)) {
      const int exponent = size == 0 ? 1 - kBias : std::max(std::ilogb(size), 1 - kBias);
      const int fraction = static_cast<int>(std::nearbyint(std::ldexp(size, kFractionBits - exponent)));
      magnitude = std::min(kInfinity, (exponent + kBias - 1) * kOne + fraction);
    }
    bits = static_cast<uint16_t>(magnitude | (std::signbit(value) ? 0x8000 : 0));
  }
  operator float() const {
    const int magnitude = bits & 0x7fff, exponent = magnitude / kOne, fraction = magnitude % kOne;
    float size = std::ldexp(static_cast<float>(exponent == 0 ? fraction : fraction + kOne),
                            std::max(exponent, 1) - kBias - kFractionBits);
    if (magnitude >= kInfinity)
      size = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
    return (bits & 0x8000) == 0 ? size : -size;
  }
};
using BFloat16 = Narrow<8, 7>;
using Half = Narrow<5, 10>;

enum class ScalarType { Double, Float, BFloat16, Half, Int, Long };
constexpr ScalarType kDouble = ScalarType::Double, kFloat = ScalarType::Float, kLong = ScalarType::Long;
constexpr ScalarType kInt = ScalarType::Int;
constexpr ScalarType kBFloat16 = ScalarType::BFloat16, kHalf = ScalarType::Half;

// Calls f(T()) with the C++ type of a dtype.
template <class F>
auto with_type(ScalarType type, const F& f) {
  switch (type) {
    case kDouble:
      return f(double());
    case kFloat:
      return f(float());
    case kBFloat16:
      return f(BFloat16());
    case kHalf:
      return f(Half());
    case kInt:
      return f(int());
    default:
      return f(int64_t());
  }
}

enum class MemoryFormat { ChannelsLast, ChannelsLast3d };

struct Device {
  bool operator==(const Device&) const = default;
};

struct TensorOptions {
  ScalarType type = kFloat;
  TensorOptions dtype(ScalarType other) const { return {other}; }
  TensorOptions memory_format(std::optional<MemoryFormat>) const { return *this; }
};

using Sizes = std::vector<int64_t>;
using IntArrayRef = Sizes;

class Tensor {
 public:
  Tensor() = default;
  // Contiguous. `lead` elements stand in front of the first, so that 1 makes it unaligned.
  Tensor(const Sizes& sizes, ScalarType type, int64_t lead = 0)
      : sizes_(sizes), strides_(sizes.size()), type_(type) {
    int64_t count = 1;
    for (size_t d = sizes.size(); d-- > 0; count *= sizes[d]) strides_[d] = count;
    with_type(type, [&](auto zero) {
      const size_t bytes = static_cast<size_t>(count + lead) * sizeof(zero);
      auto* memory = static_cast<char*>(::operator new(bytes, std::align_val_t(64)));
      std::memset(memory, 0xff, bytes);
      memory_ = std::shared_ptr<char>(memory, [](char* p) { ::operator delete(p, std::align_val_t(64)); });
      data_ = memory + static_cast<size_t>(lead) * sizeof(zero);
    });
  }

  bool defined() const { return memory_ != nullptr; }
  bool is_same(const Tensor& other) const { return memory_ == other.memory_; }
  bool is_cuda() const { return true; }
  bool is_cpu() const { return false; }
  Device device() const { return {}; }
  ScalarType scalar_type() const { return type_; }
  TensorOptions options() const { return {type_}; }
  int64_t dim() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t size(int64_t d) const { return sizes_.at(static_cast<size_t>(d)); }
  int64_t stride(int64_t d) const { return strides_.at(static_cast<size_t>(d)); }
  const Sizes& sizes() const { return sizes_; }
  const Sizes& strides() const { return strides_; }
  int64_t numel() const {
    int64_t count = 1;
    for (const int64_t n : sizes_) count *= n;
    return count;
  }

  void* data_ptr() const { return data_; }
  template <class T>
  T* data_ptr() const {
    with_type(type_, [](auto zero) { TORCH_CHECK((std::is_same_v<T, decltype(zero)>)); });
    return reinterpret_cast<T*>(data_);
  }
  template <class T>
  T* mutable_data_ptr() const {
    return data_ptr<T>();
  }
  template <class T>
  const T* const_data_ptr() const {
    return data_ptr<T>();
  }

  Tensor select(int64_t d, int64_t i) const {
    Tensor view = *this;
    with_type(type_, [&](auto zero) { view.data_ += i * stride(d) * static_cast<int64_t>(sizeof(zero)); });
    view.sizes_.erase(view.sizes_.begin() + d);
    view.strides_.erase(view.strides_.begin() + d);
    return view;
  }
  Tensor operator[](int64_t i) const { return select(0, i); }
  Tensor permute(const std::vector<size_t>& order) const {
    Tensor view = *this;
    for (size_t d = 0; d < order.size(); ++d) {
      view.sizes_[d] = sizes_[order[d]];
      view.strides_[d] = strides_[order[d]];
    }
    return view;
  }
  Tensor transpose(size_t a, size_t b) const {
    std::vector<size_t> order(sizes_.size());
    for (size_t d = 0; d < order.size(); ++d) order[d] = d == a ? b : d == b ? a : d;
    return permute(order);
  }
  // Only named by what runs on the CPU.
  Tensor reshape(const Sizes&) const { throw std::logic_error("not on the emulated GPU"); }
  Tensor sum(int64_t) const { throw std::logic_error("not on the emulated GPU"); }

  // Strides of dimensions of size 1 do not matter.
  bool is_contiguous() const {
    int64_t expected = 1;
    for (size_t d = sizes_.size(); d-- > 0; expected *= sizes_[d])
      if (sizes_[d] != 1 && strides_[d] != expected && numel() > 0) return false;
    return true;
  }
  bool is_contiguous(MemoryFormat) const { return dim() >= 3 && channels_last_view().is_contiguous(); }
  Tensor channels_last_view() const {  // [rows, ..., channels]
    std::vector<size_t> order{0};
    for (size_t d = 2; d < sizes_.size(); ++d) order.push_back(d);
    order.push_back(1);
    return permute(order);
  }
  Tensor contiguous() const { return is_contiguous() ? *this : to(type_); }
  Tensor to(ScalarType type) const {  // always a copy
    Tensor copy(sizes_, type);
    copy.copy_(*this);
    return copy;
  }

  // All values in row-major order, whatever the strides.
  std::vector<double> values() const {
    std::vector<double> all;
    all.reserve(static_cast<size_t>(numel()));
    each([&](auto& element) { all.push_back(static_cast<double>(element)); });
    return all;
  }
  void set_values(const std::vector<double>& all) const {
    size_t i = 0;
    each([&](auto& element) {
      using T = std::remove_reference_t<decltype(element)>;
      element = sizeof(T) == 2 ? T(static_cast<float>(all[i])) : static_cast<T>(all[i]);
      ++i;
    });
  }
  void copy_(const Tensor& from) const { set_values(from.values()); }
  void zero_() const { set_values(std::vector<double>(static_cast<size_t>(numel()), 0.0)); }

 private:
  template <class F>
  void each(const F& f) const {
    if (numel() == 0) return;
    with_type(type_, [&](auto zero) { each_below<decltype(zero)>(0, 0, f); });
  }
  template <class T, class F>
  void each_below(size_t d, int64_t offset, const F& f) const {
    if (d == sizes_.size()) return f(reinterpret_cast<T*>(data_)[offset]);
    for (int64_t i = 0; i < sizes_[d]; ++i) each_below<T>(d + 1, offset + i * strides_[d], f);
  }

  std::shared_ptr<char> memory_;
  char* data_ = nullptr;
  Sizes sizes_, strides_;
  ScalarType type_ = kFloat;
};

inline Tensor empty(const Sizes& sizes, const TensorOptions& options) {
  return {sizes, options.type};
}

inline Tensor zeros(const Sizes& sizes, const TensorOptions& options) {
  const Tensor x = empty(sizes, options);
  x.zero_();
  return x;
}

inline Tensor channels_last(const Sizes& sizes,
                            ScalarType type) {  // [rows, channels, ...], channels side by side
  Sizes lying = sizes;
  lying.erase(lying.begin() + 1);
  lying.push_back(sizes[1]);
  std::vector<size_t> order{0, lying.size() - 1};
  for (size_t d = 1; d + 1 < lying.size(); ++d) order.push_back(d);
  return Tensor(lying, type).permute(order);
}

inline Tensor empty_like(const Tensor& x) {  // of a dense tensor, with its strides
  return x.is_contiguous() ? Tensor(x.sizes(), x.scalar_type()) : channels_last(x.sizes(), x.scalar_type());
}

}  // namespace at

namespace bnlab {

enum class Activation { none, relu };

constexpr at::ScalarType statistics_type(at::ScalarType input) {
  return input == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace bnlab
