// How the kernels of response.cu and squash.cu go over a tensor that is cut into equal slices, and how they
// sum in a fixed order. A block takes a tile of channels (rows: [slices, rows, channels]) or one channel
// (planes: [slices, images, channels, plane]), and a part of its slice. What the blocks of a slice have
// summed lies in `parts`; who needs it, in a later launch, adds it up.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "strategies/kernels/backend.hpp"
#include "strategies/kernels/walk.cuh"

namespace bnlab::kernels::cuda {
namespace {

constexpr int kTile = 64;             // channels of a block, at most
constexpr int kSums = 3;              // of a channel, at most
constexpr int kPlaces = 4;            // that a thread loads at once, at most
constexpr int kLongest = 1024;        // places of a thread, which sums in float32
constexpr int kMergedParts = 64;      // of a slice, where every block of the next launch adds them up
constexpr int kResident = 4;          // blocks of a processor at once
constexpr int kGradientChannels = 8;  // of a block that sums what parameters get
constexpr int kPartials = kBlockThreads > kSums* kTile ? kBlockThreads : kSums* kTile;

// Of what a kernel is compiled for. adds: a residual is read.
template <class T_, bool kRows_, int V_, bool kAdds_>
struct Kind {
  using T = T_;
  using A = std::conditional_t<std::is_same_v<T, double>, double, float>;
  using Vector = Pack<T, V_>;
  static constexpr bool kRows = kRows_, kAdds = kAdds_;
  static constexpr int V = V_;
  static constexpr int N = kRows ? V : 1;  // channels of a thread
  // Places that a thread loads at once of as many tensors: 64 bytes.
  static constexpr int batch(int tensors) {
    return std::clamp<int>(64 / (static_cast<int>(sizeof(T)) * V * tensors), 1, kPlaces);
  }
};

struct Sweep {
  int64_t channels = 0, plane = 0, images = 0;  // images: of a slice
  unsigned tiles = 0, parts = 0, slices = 0;
  int width = 1;  // rows: threads side by side, a power of two
  int threads = kBlockThreads;
  int64_t blocks() const { return int64_t{tiles} * parts * slices; }
};

// How many of k, k + step, k + 2 step, ... lie before `end`: at most kLongest.
__device__ inline int steps_to(int64_t k, int64_t end, int64_t step) {
  return k < end ? static_cast<int>((end - k + step - 1) / step) : 0;
}

// Where a block and a thread work, and the places that the thread visits one after the other: `i` is the
// first element of V neighbours.
template <class K>
struct Places {
  static constexpr bool kRows = K::kRows;
  static constexpr int V = K::V;
  unsigned tile, part, slice;
  int64_t channel, first_channel;  // of the thread, of the block
  int columns;                     // channels of the block
  int count = 0;
  int64_t i, position = 0, across = 0, position_step = 0, step;

  __device__ Places(const Sweep& sweep, unsigned block) {
    tile = block % sweep.tiles;
    part = block / sweep.tiles % sweep.parts;
    slice = block / sweep.tiles / sweep.parts;
    const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    if (kRows) {
      const int lane = t % sweep.width, height = threads / sweep.width;
      const int64_t rows = sweep.images * sweep.plane, row = int64_t{part} * height + t / sweep.width;
      columns = sweep.width * V;
      first_channel = int64_t{tile} * columns;
      channel = first_channel + lane * V;
      step = int64_t{sweep.parts} * height;
      if (channel < sweep.channels) count = steps_to(row, rows, step);
      step *= sweep.channels;
      i = (slice * rows + row) * sweep.channels + channel;
    } else {
      columns = 1;
      first_channel = channel = tile;
      across = sweep.plane / V;
      const int64_t first = int64_t{part} * threads + t, all = int64_t{sweep.parts} * threads;
      count = steps_to(first, sweep.images * across, all);
      position = first % across;
      position_step = all % across;
      const int64_t image = slice * sweep.images + first / across;
      i = (image * sweep.channels + channel) * sweep.plane + position * V;
      step = all / across * sweep.channels * sweep.plane + position_step * V;
    }
  }
  __device__ void next(const Sweep& sweep) {
    i += step;
    if (kRows) return;
    position += position_step;
    if (position < across) return;
    position -= across;
    i += (sweep.channels - 1) * sweep.plane;
  }
  __device__ bool inside(const Sweep& sweep, int column) const {
    return first_channel + column < sweep.channels;
  }
  // The values of the thread's channels, of an array with one for each column of the block.
  template <class A>
  __device__ void pick(const A* of_columns, A (&values)[K::N]) const {
    for (int v = 0; v < K::N; ++v) values[v] = of_columns[channel - first_channel + v];
  }
};

// Zeros where there is no place: no branch keeps the loads of a batch apart.
template <int V, class T>
__device__ Pack<T, V> load_if(bool inside, const T* p) {
  using Bits = Piece<sizeof(T) * V>;
  Bits bits{};
  if (inside) bits = __ldg(reinterpret_cast<const Bits*>(p));
  Pack<T, V> pack;
  memcpy(&pack, &bits, sizeof pack);
  return pack;
}

// Calls use(i, inside, take(i, inside)) for every place. What kBatch of them take is loaded before the
// first is used. The last batch goes beyond the last place: there `inside` is false, take gives zeros, and
// nothing may be written.
template <int kBatch, class K, class Take, class Use>
__device__ void each_place(const Sweep& sweep, Places<K> at, const Take& take, const Use& use) {
  for (int left = at.count; left > 0; left -= kBatch) {
    decltype(take(at.i, true)) loaded[kBatch];
    Places<K> ahead = at;
#pragma unroll
    for (int k = 0; k < kBatch; ++k, ahead.next(sweep)) loaded[k] = take(ahead.i, k < left);
#pragma unroll
    for (int k = 0; k < kBatch; ++k, at.next(sweep)) use(at.i, k < left, loaded[k]);
  }
}

// Sums value(column, row) over all rows by the whole block, in an order that only the sizes decide, and calls
// then(column, total) once for each column.
template <class Value, class Then>
__device__ void sum_columns(int columns, int rows, const Value& value, const Then& then) {
  __shared__ double partial[kPartials];
  const int t = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  int helpers = 1;
  while (2 * helpers * columns <= threads && helpers * helpers < rows) helpers *= 2;
  for (int item = t; item < columns * helpers; item += threads) {
    double total = 0;
#pragma unroll 8
    for (int row = item / columns; row < rows; row += helpers)
      total += static_cast<double>(value(item % columns, row));
    partial[item] = total;
  }
  __syncthreads();
  for (int column = t; column < columns; column += threads) {
    double total = 0;
    for (int helper = 0; helper < helpers; ++helper) total += partial[helper * columns + column];
    then(column, total);
  }
  __syncthreads();  // what `then` wrote is there
}

// What the threads of a block have summed goes to parts [slices, parts, N, channels].
template <int N, class K, class A>
__device__ void write_parts(const Sweep& sweep, const Places<K>& at, const A (&sum)[N][K::N], A* parts) {
  __shared__ A values[N][kBlockThreads * K::N];
  for (int n = 0; n < N; ++n)
    for (int v = 0; v < K::N; ++v) values[n][static_cast<int>(threadIdx.x) * K::N + v] = sum[n][v];
  __syncthreads();
  A* own = parts + (int64_t{at.slice} * sweep.parts + at.part) * N * sweep.channels + at.first_channel;
  sum_columns(
      N * at.columns, static_cast<int>(blockDim.x) / sweep.width,
      [&](int column, int row) {
        return values[column / at.columns][row * at.columns + column % at.columns];
      },
      [&](int column, double total) {
        if (at.inside(sweep, column % at.columns))
          own[column / at.columns * sweep.channels + column % at.columns] = static_cast<A>(total);
      });
}

// The n-th of N sums of each of the block's channels, over all `count` parts of its slice.
template <class K, class A, class Then>
__device__ void merge_parts(const Sweep& sweep, const Places<K>& at, const A* parts, int count, int N, int n,
                            const Then& then) {
  const A* own = parts + (int64_t{at.slice} * count * N + n) * sweep.channels + at.first_channel;
  sum_columns(
      at.columns, count,
      [&](int column, int part) {
        return at.inside(sweep, column) ? own[int64_t{part} * N * sweep.channels + column] : A(0);
      },
      then);
}

// Block `block` of those that sum what parameters get: of kGradientChannels channels all N sums over all
// `count` parts of all slices, each part times weight(n, slice, channel). then(n, channel, total)
template <int N, class A, class Weight, class Then>
__device__ void merge_gradients(unsigned block, int64_t channels, const A* parts, int slices, int count,
                                const Weight& weight, const Then& then) {
  const int64_t first = int64_t{block} * kGradientChannels;
  sum_columns(
      N * kGradientChannels, slices * count,
      [&](int column, int row) {
        const int64_t c = first + column % kGradientChannels;
        const int n = column / kGradientChannels;
        if (c >= channels) return 0.0;
        return static_cast<double>(parts[(int64_t{row} * N + n) * channels + c]) * weight(n, row / count, c);
      },
      [&](int column, double total) {
        const int64_t c = first + column % kGradientChannels;
        if (c < channels) then(column / kGradientChannels, c, total);
      });
}
inline unsigned gradient_blocks(int64_t channels) {
  return static_cast<unsigned>((channels + kGradientChannels - 1) / kGradientChannels);
}

// On the host.

// Calls f(Kind) with the type, the order of the elements, and how many neighbours a thread takes: more than
// one where whole vectors lie aligned in all tensors, of which some may be undefined.
template <class F>
void with_kind(const Layout& layout, at::ScalarType type, bool adds,
               std::initializer_list<at::Tensor> tensors, const F& f) {
  const auto in_type = [&](auto zero) {
    using T = decltype(zero);
    constexpr int V = sizeof(T) == 8 ? 2 : 4;
    bool vectors = (layout.channels_last ? layout.channels : layout.plane) % V == 0;
    for (const at::Tensor& tensor : tensors)
      if (tensor.defined())
        vectors = vectors && reinterpret_cast<uintptr_t>(tensor.data_ptr()) % (V * sizeof(T)) == 0;
    const auto of_width = [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      if (layout.channels_last)
        adds ? f(Kind<T, true, kWidth, true>()) : f(Kind<T, true, kWidth, false>());
      else
        adds ? f(Kind<T, false, kWidth, true>()) : f(Kind<T, false, kWidth, false>());
    };
    vectors ? of_width(std::integral_constant<int, V>()) : of_width(std::integral_constant<int, 1>());
  };
  switch (type) {
    case at::kDouble:
      return in_type(double());
    case at::kFloat:
      return in_type(float());
    case at::kBFloat16:
      return in_type(at::BFloat16());
    default:
      return in_type(at::Half());
  }
}

// slices: of equally many images. The shapes and the GPU decide how a tensor is cut. merged: whether the
// blocks of a later launch add up the parts.
template <class K>
Sweep plan_sweep(const Layout& layout, int64_t slices, bool merged) {
  const auto divide = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const auto power_of_two = [](int64_t n, int limit) {
    int p = 1;
    while (p < n && p < limit) p *= 2;
    return p;
  };
  int device = 0, processors = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  Sweep sweep;
  sweep.channels = layout.channels;
  sweep.plane = layout.plane;
  sweep.images = layout.rows / slices;
  sweep.slices = static_cast<unsigned>(slices);
  int64_t tiles = layout.channels, steps = 0;
  if (K::kRows) {
    sweep.width = power_of_two(divide(layout.channels, K::V), kTile / K::V);
    tiles = divide(layout.channels, sweep.width * K::V);
    steps = divide(sweep.images * layout.plane, sweep.threads / sweep.width);
  } else {
    const int64_t all = sweep.images * (layout.plane / K::V);
    sweep.threads = std::max(32, power_of_two(all, kBlockThreads));
    steps = divide(all, sweep.threads);
  }
  const auto to_fill = [&](int resident) { return int64_t{resident} * processors / (tiles * slices); };
  int64_t wanted = std::min(to_fill(kResident), divide(steps, kPlaces));
  if (merged) wanted = std::min(wanted, std::max<int64_t>(kMergedParts, to_fill(kResident / 2)));
  const int64_t parts = std::max<int64_t>({1, wanted, divide(steps, kLongest)});
  TORCH_CHECK(tiles * parts * slices + layout.channels < (int64_t{1} << 31), "kernels: too many blocks");
  sweep.tiles = static_cast<unsigned>(tiles);
  sweep.parts = static_cast<unsigned>(parts);
  return sweep;
}

template <class T>
T* data(const at::Tensor& tensor) {  // of the dtype that with_kind has found
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

}  // namespace
}  // namespace bnlab::kernels::cuda
