// The sweeps of kernels.hpp on the emulated GPU against float64 loops.
#include <algorithm>

#include "tests/emulation/device.hpp"
#include "tests/emulation/problems.hpp"
#include "tests/emulation/values.hpp"

namespace bnlab::kernels::emulated {
namespace {

using at::Tensor;

struct Inputs {
  Tensor x, dy, residual;
  Tensor mean, scale, shift, c;  // [S, C]; scale and shift are a and b of the backward pass, too
};

struct Outputs {
  Tensor moments, y, sums, dx, g;
  bool from_input_agrees = true;  // the backward pass that computes the sign of y, with the one that reads y
};

Outputs compute(const Problem& problem, const Inputs& in) {
  const Offsets& offsets = problem.offsets;
  const Activation activation = problem.activation;
  Outputs out;
  out.moments = moments(in.x, offsets);
  out.y = normalise(in.x, offsets, in.mean, in.scale, in.shift, activation, in.residual);
  out.sums = backward_sums(in.dy, in.x, out.y, offsets, in.mean, activation);
  out.dx = backward_input(in.dy, in.x, out.y, offsets, in.mean, in.scale, in.shift, in.c, activation);
  out.g = backward_residual(in.dy, out.y, activation);
  if (!in.residual.defined()) {  // the sign of y, computed from x
    const FromInput from{.scale = in.scale, .shift = in.shift};
    const Tensor sums = backward_sums(in.dy, in.x, out.y, offsets, in.mean, activation, from);
    const Tensor dx =
        backward_input(in.dy, in.x, out.y, offsets, in.mean, in.scale, in.shift, in.c, activation, from);
    out.from_input_agrees = same_bits(sums, out.sums) && same_bits(dx, out.dx);
  }
  return out;
}

bool same_outputs(const Outputs& a, const Outputs& b) {
  return same_bits(a.moments, b.moments) && same_bits(a.y, b.y) && same_bits(a.sums, b.sums) &&
         same_bits(a.dx, b.dx) && same_bits(a.g, b.g);
}

// One slice and channel after the other.
class Check {
 public:
  Check(const Problem& problem, const Inputs& in, const Outputs& out)
      : problem_(problem),
        x_(in.x.values()),
        dy_(in.dy.values()),
        residual_(in.residual.defined() ? in.residual.values() : std::vector<double>(x_.size(), 0.0)),
        y_(out.y.values()),
        dx_(out.dx.values()),
        g_(out.g.values()),
        mean_(in.mean.values()),
        scale_(in.scale.values()),
        shift_(in.shift.values()),
        c_(in.c.values()),
        moments_(out.moments.values()),
        sums_(out.sums.values()),
        channels_(in.x.size(1)),
        plane_(1),
        eps_(rounding(statistics_type(problem.type))),
        out_eps_(rounding(problem.type)) {
    for (int64_t d = 2; d < in.x.dim(); ++d) plane_ *= in.x.size(d);
    for (int64_t s = 0; s + 1 < static_cast<int64_t>(problem.offsets.size()); ++s)
      for (int64_t c = 0; c < channels_; ++c) slice(s, c);
  }

  const std::string& mismatch() const { return comparison_.mismatch(); }

 private:
  void slice(int64_t s, int64_t c) {
    const auto expect = [&](const char* what, double got, double expected, double bound) {
      comparison_.expect(what, s, c, got, expected, bound);
    };
    const auto of = static_cast<size_t>(s * channels_ + c);
    const double mean = mean_[of], scale = scale_[of], shift = shift_[of];
    double n = 0, total = 0, largest = 0, sum_g = 0, sum_gx = 0, size_g = 0, size_gx = 0;
    each(s, c, [&](size_t i) {
      const double x = x_[i], d = x - mean;
      ++n;
      total += x;
      largest = std::max(largest, std::abs(x));

      double y = d * scale + shift + residual_[i];
      const double size =
          (std::abs(x) + std::abs(mean)) * std::abs(scale) + std::abs(shift) + std::abs(residual_[i]);
      if (problem_.activation == Activation::relu) y = std::max(y, 0.0);
      expect("normalise", y_[i], y, std::abs(y) * out_eps_ + 4 * eps_ * size + smallest(problem_.type));

      const double g = problem_.activation == Activation::none || y_[i] > 0 ? dy_[i] : 0;
      expect("backward_residual", g_[i], g, 0);
      const double dx = scale * g + shift * d + c_[of];
      const double dx_size =
          std::abs(scale * g) + std::abs(shift) * (std::abs(x) + std::abs(mean)) + std::abs(c_[of]);
      expect("backward_input", dx_[i], dx,
             std::abs(dx) * out_eps_ + 4 * eps_ * dx_size + smallest(problem_.type));
      sum_g += g;
      sum_gx += g * d;
      size_g += std::abs(g);
      size_gx += std::abs(g) * (std::abs(x) + std::abs(mean));
    });
    const double own_mean = total / std::max(n, 1.0);
    double m2 = 0;
    each(s, c, [&](size_t i) { m2 += (x_[i] - own_mean) * (x_[i] - own_mean); });
    const auto row = static_cast<size_t>(s * (1 + 2 * channels_)), by_channel = static_cast<size_t>(c);
    const auto width = static_cast<size_t>(channels_);
    // A thread sums deviations from its first element, in blocks of few elements, so its error is some ulp of
    // the spread and not of the values.
    const double spread = std::sqrt(m2 / std::max(n, 1.0));
    expect("count", moments_[row], n, 0);
    expect("mean", moments_[row + 1 + by_channel], own_mean, 30 * eps_ * spread + 0x1p-50 * largest);
    expect("M2", moments_[row + 1 + width + by_channel], m2,
           60 * eps_ * m2 + 0x1p-48 * n * largest * largest);
    expect("sum of g", sums_[2 * width * static_cast<size_t>(s) + by_channel], sum_g, 30 * eps_ * size_g);
    expect("sum of g (x - mean)", sums_[2 * width * static_cast<size_t>(s) + width + by_channel], sum_gx,
           30 * eps_ * size_gx);
  }

  template <class F>
  void each(int64_t s, int64_t c, const F& f) const {
    for (int64_t r = problem_.offsets[static_cast<size_t>(s)];
         r < problem_.offsets[static_cast<size_t>(s) + 1]; ++r) {
      for (int64_t p = 0; p < plane_; ++p) f(static_cast<size_t>((r * channels_ + c) * plane_ + p));
    }
  }

  const Problem& problem_;
  std::vector<double> x_, dy_, residual_, y_, dx_, g_, mean_, scale_, shift_, c_, moments_, sums_;
  int64_t channels_, plane_;
  double eps_, out_eps_;  // of the arithmetic, of results
  Comparison comparison_;
};

}  // namespace

std::string mismatch(const Problem& problem) {
  std::mt19937 random(7);
  const auto tensor = [&](double centre, const std::string& layout) {
    return filled(empty_in(layout, problem.sizes, problem.type), random, centre, 2);
  };
  const std::string residual_layout = problem.unaligned_residual ? "unaligned" : problem.layout;
  const auto slices = static_cast<int64_t>(problem.offsets.size()) - 1;
  const auto numbers = [&](double centre) {
    return filled(Tensor({slices, problem.sizes[1]}, statistics_type(problem.type)), random, centre, 1);
  };
  const Inputs in{
      .x = tensor(problem.centre, problem.layout),
      .dy = tensor(0, problem.layout),
      .residual = problem.residual ? tensor(0, residual_layout) : Tensor(),
      .mean = numbers(0.3),
      .scale = numbers(1),
      .shift = numbers(0),
      .c = numbers(0),
  };
  emulation::set_order(emulation::Order::ascending);
  const Outputs out = compute(problem, in);
  const bool turned = problem.type == at::kFloat || problem.type == at::kHalf;
  emulation::set_order(turned ? emulation::Order::descending : emulation::Order::shuffled);
  if (!same_outputs(out, compute(problem, in))) return "the order of threads or blocks changes the results";
  if (!out.from_input_agrees) return "the sign of y computed from x lets other gradients pass";
  const at::Sizes strides = at::empty_like(in.x).strides();
  if (problem.layout != "strided" && (out.y.strides() != strides || out.dx.strides() != strides))
    return "a result has not the memory format of x";
  return Check(problem, in, out).mismatch();
}

// Sums of up to 2,048 gradients of 1 + 2^-13 are exact in float32, and longer ones lose the last digit of
// each. So many slices leave a thread the choice between many places and many blocks.
std::string mismatch_of_long_sums() {
  constexpr int64_t kRows = 1 << 19, kChannels = 3, kSlices = 256;
  const Tensor x({kRows, kChannels}, at::kFloat), dy({kRows, kChannels}, at::kFloat);
  const Tensor mean({kSlices, kChannels}, at::kFloat);
  const double g = 1 + 0x1p-13;
  x.zero_();
  mean.zero_();
  dy.set_values(std::vector<double>(static_cast<size_t>(dy.numel()), g));
  Offsets offsets(kSlices + 1, 0);
  offsets.back() = kRows;  // all but the last are empty
  emulation::set_order(emulation::Order::ascending);
  const auto sums = backward_sums(dy, x, {}, offsets, mean, Activation::none).values();
  Comparison comparison;
  for (int64_t c = 0; c < kChannels; ++c) {
    const auto last = static_cast<size_t>((kSlices - 1) * 2 * kChannels + c);
    comparison.expect("sum of g of a long column", kSlices - 1, c, sums[last], kRows * g, 0);
  }
  return comparison.mismatch();
}

std::string mismatch_of_streams() {
  const Tensor x({600, 5}, at::kFloat);  // in parts, which take tickets
  x.zero_();
  for (const int64_t stream : {1, 2, 1}) {
    emulation::set_stream(stream);
    moments(x, {0, 200, 600});
  }
  emulation::set_stream(0);
  return "";  // the emulated GPU refuses
}

// Far from zero, beside a first value that is far, and of a constant. Of the slices all but the last are
// empty: where there are many, a thread has several batches.
void moments_of_long_columns(int64_t slices, Comparison& comparison) {
  constexpr int64_t kRows = 1 << 14, kChannels = 4;
  std::mt19937 random(7);
  const Tensor x = filled(Tensor({kRows, kChannels}, at::kFloat), random, 0, 1);
  std::vector<double> values = x.values();
  for (size_t i = 0; i < values.size(); i += kChannels) {
    values[i] += 1e4;
    values[i + 2] = 1.0 / 3;
  }
  values[1] = 1e6;
  values[3] = INFINITY;
  x.set_values(values);
  values = x.values();
  Offsets offsets(static_cast<size_t>(slices + 1), 0);
  offsets.back() = kRows;
  const Tensor rows = moments(x, offsets);
  const std::vector<double> got = rows[slices - 1].values();
  const double bounds[] = {1e-6, 2e-5, 0};
  for (size_t c = 0; c < 3; ++c) {
    double mean = 0, m2 = 0;
    for (size_t i = c; i < values.size(); i += kChannels) mean += values[i] / kRows;
    for (size_t i = c; i < values.size(); i += kChannels) m2 += (values[i] - mean) * (values[i] - mean);
    if (c == 2) m2 = 0;
    const double spread = std::sqrt(m2 / kRows), bound = bounds[c];
    const auto channel = static_cast<int64_t>(c);
    comparison.expect("mean of a long column", slices, channel, got[1 + c], mean,
                      bound * spread + 1e-11 * mean);
    comparison.expect("M2 of a long column", slices, channel, got[1 + kChannels + c], m2, bound * m2);
  }
  comparison.expect(!std::isfinite(got[1 + 3]) && !std::isfinite(got[1 + kChannels + 3]), "infinity is lost");
}

std::string mismatch_of_special_values() {
  Comparison comparison;
  const double nan = std::nan("");
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const Tensor x({2, 8, 5, 4}, type), one({1, 8}, statistics_type(type));  // x is fresh: NaN
    one.set_values(std::vector<double>(8, 1.0));
    for (const double value : normalise(x, {0, 2}, one, one, one, Activation::relu, {}).values())
      comparison.expect(std::isnan(value), "ReLU turns NaN into a number");
  }
  // Squares too small for float32, with which a part, or the total of several, comes out below zero.
  for (const auto& [rows, value] : {std::pair{1024, 2.5e-23}, {8192, 1e-25}}) {
    const Tensor tiny({rows, 1}, at::kFloat);
    std::vector<double> values(static_cast<size_t>(rows), value);
    std::fill_n(values.begin(), 256, 0.0);
    tiny.set_values(values);
    comparison.expect(moments(tiny, {0, rows}).values()[2] >= 0, "a sum of squares is below zero");
  }
  for (const int64_t slices : {1, 256}) moments_of_long_columns(slices, comparison);
  for (const char* layout : {"contiguous", "channels_last"}) {
    std::mt19937 random(7);
    const Tensor x = filled(empty_in(layout, {4, 8, 5, 4}, at::kFloat), random, 0, 1);
    x.select(0, 1).select(0, 3).select(0, 2).select(0, 2).set_values({nan});
    const std::vector<double> all = moments(x, {0, 2, 4}).values();  // two rows of 1 + 2 * 8
    for (size_t i = 0; i < all.size(); ++i) {
      comparison.expect(std::isnan(all[i]) == (i == 1 + 3 || i == 1 + 8 + 3),
                        "a NaN leaves its channel or slice");
    }
    const Tensor far = filled(empty_in(layout, {2, 5, 16, 16}, at::kFloat), random, 0, 1);
    for (int64_t c = 0; c < 5; ++c) far[0][c][0][0].set_values({1e3});
    const std::vector<double> values = far.to(at::kDouble).values(), got = moments(far, {0, 2}).values();
    for (int64_t c = 0; c < 5; ++c) {
      double sum = 0, squares = 0;
      for (size_t i = 0; i < 512; ++i) {
        const double value = values[i / 256 * 1280 + static_cast<size_t>(c) * 256 + i % 256];
        sum += value;
        squares += value * value;
      }
      const double m2 = squares - sum * sum / 512;
      comparison.expect("M2 beside an outlier", 0, c, got[static_cast<size_t>(1 + 5 + c)], m2, 1e-5 * m2);
    }
  }
  return comparison.mismatch();
}

}  // namespace bnlab::kernels::emulated
