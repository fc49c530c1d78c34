#include "harness/training/predictions.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "harness/tasks/images/crop.hpp"

namespace bnlab {
namespace {

// Where crops begin along one side, so that they cover it: evenly, the last one at its end.
std::vector<int64_t> beginnings(int64_t size, int64_t crop, double stride) {
  const int64_t step = std::max<int64_t>(1, std::llround(std::ceil(static_cast<double>(crop) * stride)));
  std::vector<int64_t> all = {0};
  while (all.back() + crop < size) all.push_back(std::min(all.back() + step, size - crop));
  return all;
}

at::Tensor resized(const at::Tensor& x, int64_t height, int64_t width) {
  return x.size(2) == height && x.size(3) == width
             ? x
             : at::upsample_bilinear2d(x, at::IntArrayRef{height, width}, /*align_corners=*/false);
}

at::Tensor probabilities(const at::Tensor& images, const LogitsOf& logits_of) {
  return logits_of(images).to(at::kFloat).softmax(1);
}

// An image smaller than the crop is continued by its mirror image.
at::Tensor over_crops(const Evaluation& how, const at::Tensor& images, const LogitsOf& logits_of) {
  if (!how.crop) return probabilities(images, logits_of);
  const auto [crop_height, crop_width] = *how.crop;
  const int64_t height = images.size(2), width = images.size(3);
  const at::Tensor padded = mirrored(images, std::max(height, crop_height), std::max(width, crop_width));
  at::Tensor sum, covered;
  for (const int64_t top : beginnings(height, crop_height, how.stride)) {
    for (const int64_t left : beginnings(width, crop_width, how.stride)) {
      const auto cut = [&, top = top, left = left](const at::Tensor& whole) {
        return whole.narrow(2, top, crop_height).narrow(3, left, crop_width);
      };
      const at::Tensor part =
          probabilities(cut(padded).contiguous(images.suggest_memory_format()), logits_of);
      if (!sum.defined()) {
        sum = at::zeros({images.size(0), part.size(1), padded.size(2), padded.size(3)}, part.options());
        covered = at::zeros({1, 1, padded.size(2), padded.size(3)}, part.options());
      }
      cut(sum).add_(part);
      cut(covered).add_(1);
    }
  }
  return (sum / covered).narrow(2, 0, height).narrow(3, 0, width);
}

}  // namespace

at::Tensor predictions(const Evaluation& how, const at::Tensor& images, const LogitsOf& logits_of) {
  if (how.in_one_piece()) return logits_of(images);
  at::Tensor sum;
  for (const double scale : how.scales) {
    const at::Tensor x =
        resized(images, Evaluation::scaled(images.size(2), scale), Evaluation::scaled(images.size(3), scale));
    at::Tensor scores = over_crops(how, x, logits_of);
    if (how.flip) scores = (scores + over_crops(how, x.flip(3), logits_of).flip(3)) / 2;
    scores = resized(scores, images.size(2), images.size(3));
    sum = sum.defined() ? sum + scores : scores;
  }
  return sum / static_cast<double>(how.scales.size());
}

}  // namespace bnlab
