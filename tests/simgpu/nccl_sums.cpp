#include "tests/simgpu/nccl_sums.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tests/simgpu/simgpu.hpp"

namespace simgpu {
namespace {

struct Half {
  uint16_t bits;
  operator float() const {
    _Float16 half;
    std::memcpy(&half, &bits, sizeof bits);
    return static_cast<float>(half);
  }
  Half& operator=(float value) {
    const _Float16 half = static_cast<_Float16>(value);
    std::memcpy(&bits, &half, sizeof bits);
    return *this;
  }
};

struct BFloat16 {
  uint16_t bits;
  operator float() const {
    const uint32_t wide = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  BFloat16& operator=(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    // Rounds to the nearest, ties to even; NaN stays one.
    bits = std::isnan(value) ? 0x7fc0 : static_cast<uint16_t>((wide + 0x7fff + ((wide >> 16) & 1)) >> 16);
    return *this;
  }
};

// What elements are computed in.
template <class T>
struct Computed {
  using Type = T;
};
template <>
struct Computed<Half> {
  using Type = float;
};
template <>
struct Computed<BFloat16> {
  using Type = float;
};

template <class Work>
void with_elements(void* elements, ncclDataType_t type, const Work& work) {
  switch (type) {
    case ncclInt8:
      return work(static_cast<int8_t*>(elements));
    case ncclUint8:
      return work(static_cast<uint8_t*>(elements));
    case ncclInt32:
      return work(static_cast<int32_t*>(elements));
    case ncclUint32:
      return work(static_cast<uint32_t*>(elements));
    case ncclInt64:
      return work(static_cast<int64_t*>(elements));
    case ncclUint64:
      return work(static_cast<uint64_t*>(elements));
    case ncclFloat16:
      return work(static_cast<Half*>(elements));
    case ncclBfloat16:
      return work(static_cast<BFloat16*>(elements));
    case ncclFloat32:
      return work(static_cast<float*>(elements));
    case ncclFloat64:
      return work(static_cast<double*>(elements));
    default:
      die("NCCL's stand-in computes nothing with elements of type " + std::to_string(type));
  }
}

template <class T>
T reduced(T a, T b, ncclRedOp_t operation) {
  switch (operation) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return a != a || a > b ? a : b;
    case ncclMin:
      return a != a || a < b ? a : b;
    default:
      return a + b;
  }
}

}  // namespace

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

void reduce_into(void* to, const void* from, size_t count, ncclDataType_t type, ncclRedOp_t operation) {
  with_elements(to, type, [&]<class T>(T* sums) {
    using C = typename Computed<T>::Type;
    const T* const others = static_cast<const T*>(from);
    for (size_t i = 0; i < count; ++i)
      sums[i] = reduced(static_cast<C>(sums[i]), static_cast<C>(others[i]), operation);
  });
}

void divide(void* elements, size_t count, ncclDataType_t type, int by) {
  with_elements(elements, type, [&]<class T>(T* sums) {
    using C = typename Computed<T>::Type;
    for (size_t i = 0; i < count; ++i) sums[i] = static_cast<C>(static_cast<C>(sums[i]) / static_cast<C>(by));
  });
}

}  // namespace simgpu
