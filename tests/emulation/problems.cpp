#include "tests/emulation/problems.hpp"

namespace bnlab::kernels::emulated {
namespace {

struct Shape {
  at::Sizes sizes;
  Offsets offsets;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{
      {{6, 5}, {0, 6}},                  // no plane, odd channels
      {{37, 64}, {0, 10, 10, 37}},       // an empty slice between others
      {{150, 130}, {0, 75, 150}},        // whole vectors and a tail of channels
      {{4, 3, 7}, {0, 2, 4}},            // three dimensions
      {{3, 8, 16}, {0, 1, 3}},           // three dimensions, whole vectors
      {{5, 8, 1, 1}, {0, 1, 5}},         // one element a plane
      {{4, 16, 6, 8}, {0, 2, 4}},        // whole vectors in both layouts
      {{5, 1, 9, 11}, {0, 0, 4, 5, 5}},  // one channel; first and last slice empty
      {{3, 24, 13, 5}, {0, 3}},          // vectors of channels, not of pixels
      {{2, 7, 8, 12}, {0, 1, 2}},        // vectors of pixels, not of channels
      {{2, 3, 50, 60}, {0, 1, 2}},       // several blocks a plane
      {{2, 6, 3, 5, 7}, {0, 1, 2}},      // five dimensions
      {{2, 8, 2, 4, 8}, {0, 2}},         // five dimensions, whole vectors
      {{3, 290}, {0, 1, 3}},             // several tiles of channels, the last not full
      {{0, 4, 3, 3}, {0, 0, 0}},         // no rows
      {{3, 4, 0, 3}, {0, 1, 3}},         // no pixels
      {{2, 2, 1, 5}, {0, 2}},            // a plane smaller than a vector
      {{1, 1}, {0, 1}},                  // one element
  };
  return all;
}

Shape ragged(int64_t slices) {  // of 0, 1, 2, 0, 1, 2, ... rows
  Offsets offsets{0};
  for (int64_t s = 0; s < slices; ++s) offsets.push_back(offsets.back() + s % 3);
  return {{offsets.back(), 2, 1, 4}, offsets};
}

}  // namespace

std::string Problem::name() const {
  std::string text = "[";
  for (const int64_t n : sizes) text += std::to_string(n) + " ";
  text.back() = ']';
  const char* types[] = {"float64", "float32", "bfloat16", "float16"};
  return text + " in " + std::to_string(offsets.size() - 1) + " slices, " + layout + ", " +
         types[static_cast<int>(type)] + (activation == Activation::relu ? ", relu" : "") +
         (residual ? ", residual" : "") + (centre > 1 ? ", far from zero" : "") +
         (unaligned_residual ? ", which alone is unaligned" : "");
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (const Shape& shape : shapes()) {
    for (const char* layout : {"contiguous", "channels_last", "strided", "unaligned"}) {
      for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
        const bool plain = layout == std::string("contiguous") || layout == std::string("channels_last");
        const bool usual = type == at::kFloat || type == at::kBFloat16;
        if (plain || usual) all.push_back({shape.sizes, shape.offsets, layout, type, Activation::relu, true});
        if (plain && usual) {
          all.push_back({shape.sizes, shape.offsets, layout, type, Activation::none, false});
          all.push_back({shape.sizes, shape.offsets, layout, type, Activation::relu, false});
          all.push_back({shape.sizes, shape.offsets, layout, type, Activation::none, true});
        }
      }
    }
  }
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    Problem problem{{4, 16, 6, 8}, {0, 2, 4}, "contiguous", type, Activation::relu, true};
    problem.unaligned_residual = true;
    all.push_back(problem);
  }
  for (const char* layout : {"contiguous", "channels_last"}) {
    for (const int64_t slices : {257, 300}) {  // more than one launch takes
      const Shape shape = ragged(slices);
      all.push_back({shape.sizes, shape.offsets, layout, at::kFloat, Activation::relu, true});
    }
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      all.push_back({{9000, 3}, {0, 1, 9000}, layout, type, Activation::relu, false});
      all.push_back({{2, 2, 110, 100}, {0, 2}, layout, type, Activation::relu, false});
      all.push_back({{3, 16, 30, 32}, {0, 1, 3}, layout, type, Activation::none, false, 1e3});
    }
  }
  return all;
}

}  // namespace bnlab::kernels::emulated
