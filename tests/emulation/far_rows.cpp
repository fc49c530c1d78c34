// A sweep over a row of which only the place in memory is far: nothing but that row exists.
#include <cstdint>

#include "strategies/kernels/cuda.cuh"
#include "tests/emulation/problems.hpp"
#include "tests/emulation/values.hpp"

namespace bnlab::kernels::emulated {
namespace {

constexpr int64_t kRow = int64_t{1} << 29, kElements = 5;  // of a row

template <bool kRows>
void check(Comparison& comparison) {
  using T = at::BFloat16;
  T row[kElements], out[kElements];
  for (int i = 0; i < kElements; ++i) row[i] = T(static_cast<float>(i + 1));
  const auto first = [](T* p) {
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(p) - kRow * kElements * int64_t{sizeof(T)});
  };
  const std::vector<float> mean(kElements, 1), scale(kElements, 2), shift(kElements, 3);
  cuda::Arguments<T> in;
  in.x = first(row);
  in.out = first(out);
  in.mean = mean.data();
  in.scale = scale.data();
  in.shift = shift.data();
  cuda::Cut cut{};
  cut.channels = kRows ? kElements : 1;
  cut.plane = kRows ? 1 : kElements;
  cut.offset[0] = kRow;
  cut.offset[1] = kRow + 1;
  cuda::launch(cuda::apply<cuda::Normalise<T, kRows, 1>>, dim3(1), dim3(8, 32), cut, in);
  for (int i = 0; i < kElements; ++i)
    comparison.expect("normalise", kRow, i, static_cast<double>(static_cast<float>(out[i])), 2 * i + 3, 0);
}

}  // namespace

std::string mismatch_of_far_rows() {
  Comparison comparison;
  check</*kRows=*/true>(comparison);
  check</*kRows=*/false>(comparison);
  return comparison.mismatch();
}

}  // namespace bnlab::kernels::emulated
