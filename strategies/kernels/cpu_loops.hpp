// The inner loops of the CPU kernels, built once per instruction set and chosen at run time. No LibTorch
// and no standard library functions in here: code built for AVX-512 must not leak into other files.
//
// Every loop sees a *run*: n elements whose channels repeat with period `width` (all channels of
// channels_last rows; 1 inside the plane of one channel). Arrays over channels come repeated `copies`
// times, so that width * copies fills whole vectors whatever the number of channels.
#pragma once

#include <cstdint>

namespace bnlab::kernels::cpu {

struct Bfloat16 {
  uint16_t bits;
};

struct Period {
  int64_t width = 1;
  int64_t copies = 1;  // a power of two
  int64_t length() const { return width * copies; }
};

// Which elements' gradients pass the activation: those with y > 0. Where y is null, those with
// (x - mean) scale + shift > 0, which is the sign of y without reading it. Where all are null, every one.
template <class T, class A>
struct ReluMask {
  const T* y = nullptr;
  const A* scale = nullptr;
  const A* shift = nullptr;
};

// T: what memory holds; A: what is computed with (float, or double for double).
template <class T, class A>
struct Loops {
  // Merges the run into (before, mean, m2): mean and M2 of the run about its own mean, then Chan.
  // mean and m2 have `width` entries; scratch has 3 * length.
  void (*moments)(const T* x, int64_t n, Period period, A* scratch, int64_t before, double* mean, double* m2);
  // Adds the run's sum of g and sum of g (x - mean) to sum_g and sum_gx; g: dy where the mask lets it pass,
  // else 0.
  void (*sums)(const T* dy, const T* x, ReluMask<T, A> mask, int64_t n, Period period, const A* mean,
               A* scratch, double* sum_g, double* sum_gx);
  void (*normalise)(const T* x, const T* residual, T* out, int64_t n, int64_t length, const A* mean,
                    const A* scale, const A* shift, bool relu);
  void (*input)(const T* dy, const T* x, ReluMask<T, A> mask, T* out, int64_t n, int64_t length,
                const A* mean, const A* a, const A* b, const A* c);
  void (*residual)(const T* dy, const T* y, T* out, int64_t n);
  int64_t lanes;  // elements of A in a vector; lengths are multiples of it
};

struct Level {
  const char* name;
  Loops<double, double> f64;
  Loops<float, float> f32;
  Loops<Bfloat16, float> bf16;
  // Chan's formula: (before, mean, m2) becomes the moments of both parts.
  void (*merge)(int64_t channels, int64_t before, double* mean, double* m2, int64_t count,
                const double* part_mean, const double* part_m2);
};

namespace baseline {
const Level& level();
}
namespace avx2 {
const Level& level();
}
namespace avx512 {
const Level& level();
}

}  // namespace bnlab::kernels::cpu
