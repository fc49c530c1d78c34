// Maps brought to other sizes: that of another map, or a few cells of means.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/types.h>

#include <array>

namespace bnlab {

// `corners`: the centres of the corner pixels fall on each other (align_corners in PyTorch).
enum class Resizing { nearest, bilinear, bilinear_corners };

// Bilinear, x [n, C, h, w] to [n, C, size]. A rank without samples has nothing to compute, and not every
// kernel for GPUs may be launched over it; that for nearest neighbours may.
inline at::Tensor bilinear(const at::Tensor& x, at::IntArrayRef size, bool corners) {
  return x.size(0) == 0 ? at::upsample_nearest2d(x, size) : at::upsample_bilinear2d(x, size, corners);
}

// x [n, C, h, w] with the height, width and memory layout of `like`. It needs no float32, in which autocast
// on GPUs would do it. A single position is copied: the layout of such a map is ambiguous, and ATen would
// take its slowest way.
inline at::Tensor resized(const at::Tensor& x, const at::Tensor& like, Resizing how) {
  const std::array<int64_t, 2> size{like.size(2), like.size(3)};
  if (x.size(2) == size[0] && x.size(3) == size[1]) {
    return x;
  }
  if (x.size(2) == 1 && x.size(3) == 1) {
    return x.expand({-1, -1, size[0], size[1]}).contiguous(like.suggest_memory_format());
  }
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  return how == Resizing::nearest ? at::upsample_nearest2d(x, size)
                                  : bilinear(x, size, how == Resizing::bilinear_corners);
}

// The means of x [n, C, h, w] over cells x cells parts of the image that overlap where the sizes do not
// divide (adaptive_avg_pool2d in PyTorch), [n, C, cells, cells]. The gradient has the layout of x; that of
// ATen's mean of the whole image is always contiguous, and every layer before would have to work in another
// layout than it was given.
inline at::Tensor cell_means(const at::Tensor& x, int64_t cells) {
  if (x.size(0) == 0) {  // as in bilinear()
    return at::upsample_nearest2d(x, {cells, cells});
  }
  if (cells == 1 && x.suggest_memory_format() == at::MemoryFormat::ChannelsLast) {
    return x.permute({0, 2, 3, 1}).mean({1, 2}).view({x.size(0), x.size(1), 1, 1});
  }
  return at::adaptive_avg_pool2d(x, {cells, cells});
}

}  // namespace bnlab
