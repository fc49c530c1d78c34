// What the checks of the steps between the sweeps share.
#pragma once

#include "strategies/kernels/kernels.hpp"
#include "tests/emulation/device.hpp"
#include "tests/emulation/values.hpp"

namespace bnlab::kernels::emulated {

// Packed moments of sets with these counts; those of an empty set are 0.
struct PackedMoments {
  std::vector<double> counts, values;
  int64_t channels;
  at::Tensor rows;

  PackedMoments(std::vector<double> of_sets, int64_t channels, std::mt19937& random)
      : counts(std::move(of_sets)), channels(channels) {
    const auto sets = static_cast<int64_t>(counts.size());
    rows = filled(at::Tensor({sets, 1 + 2 * channels}, at::kDouble), random, 1, 2);
    values = rows.values();
    for (int64_t s = 0; s < sets; ++s) {
      const double n = count(s);
      for (int64_t i = 0; i <= 2 * channels; ++i) {
        double& value = values[place(s, i)];
        value = i == 0 ? n : n == 0 ? 0 : i > channels ? std::abs(value) * n : value;
      }
    }
    rows.set_values(values);
  }

  size_t place(int64_t set, int64_t i) const { return static_cast<size_t>(set * (1 + 2 * channels) + i); }
  double count(int64_t set) const { return counts[static_cast<size_t>(set)]; }
  double mean(int64_t set, int64_t c) const { return values[place(set, 1 + c)]; }
  double m2(int64_t set, int64_t c) const { return values[place(set, 1 + channels + c)]; }
};

class StepsComparison : public Comparison {
 public:
  using Comparison::expect;

  void same(const char* what, const at::Tensor& got, const at::Tensor& expected) {
    if (expected.defined()) expect(got.defined() && same_bits(got, expected), what);
  }
  void same(const Coefficients& got, const Coefficients& expected) {
    same("mean", got.mean, expected.mean);
    same("invstd", got.invstd, expected.invstd);
    same("scale", got.scale, expected.scale);
    same("shift", got.shift, expected.shift);
    same("count", got.count, expected.count);
    same("r", got.r, expected.r);
    same("d", got.d, expected.d);
  }
  void same(const BackwardCoefficients& got, const BackwardCoefficients& expected) {
    same("a", got.a, expected.a);
    same("b", got.b, expected.b);
    same("c", got.c, expected.c);
    same("dweight", got.dweight, expected.dweight);
    same("dbias", got.dbias, expected.dbias);
  }
  void same(const RunningUpdate& got, const RunningUpdate& expected) {
    same("running statistics", got.running, expected.running);
    same("running statistics of towers", got.tower_running, expected.tower_running);
    same("their number", got.nonfinite_count, expected.nonfinite_count);
  }

  // What merge_moments has made of `from`, against float64 loops.
  void merged(const at::Tensor& made, const PackedMoments& from, int64_t group, Merge merge, double bound) {
    const std::vector<double> got = made.values();
    for (int64_t k = 0; k < made.size(0); ++k) {
      for (int64_t c = 0; c < from.channels; ++c) {
        double n = 0, sum = 0, within = 0, between = 0, squares = 0;
        for (int64_t s = k * group; s < (k + 1) * group; ++s) {
          const double count = from.count(s), mean = from.mean(s, c);
          n += count;
          sum += count * mean;
          within += from.m2(s, c);
          squares += from.m2(s, c) + count * mean * mean;
        }
        const double m = sum / std::max(n, 1.0);
        for (int64_t s = k * group; s < (k + 1) * group; ++s)
          between += from.count(s) * (from.mean(s, c) - m) * (from.mean(s, c) - m);
        expect("merged count", k, c, got[from.place(k, 0)], n, 0);
        expect("merged mean", k, c, got[from.place(k, 1 + c)], m, bound * (1 + std::abs(m)));
        expect("merged M2", k, c, got[from.place(k, 1 + from.channels + c)],
               merge == Merge::averaged ? within : within + between, bound * (1 + squares));
      }
    }
  }

  // Calls work() and expects it to take so many launches.
  template <class Work>
  auto launches(int64_t expected, const Work& work) {
    const int64_t before = emulation::counts().launches;
    auto made = work();
    expect(emulation::counts().launches - before == expected, "the number of launches");
    return made;
  }
};

// Copies of rows, one for each set of this rank.
inline at::Tensor local_rows(const at::Tensor& groups, const PooledRows& pooled) {
  at::Sizes sizes = groups.sizes();
  sizes[0] = pooled.sets;
  const at::Tensor local(sizes, groups.scalar_type());
  for (int64_t s = 0; s < pooled.sets; ++s) local[s].copy_(groups[(pooled.first + s) / pooled.group]);
  return local;
}

// Running statistics and what their update by so many rows needs; the same in every call. With towers, each
// has two of the rows.
inline RunningUpdate running_update(int64_t rows, int64_t channels, at::ScalarType type,
                                    bool towers = false) {
  std::mt19937 random(11);
  RunningUpdate update{
      .running = filled(at::Tensor({2, channels}, type), random, 1, 0.1),
      .weights = at::Tensor({towers ? 3 : 2, rows}, at::kDouble),
      .decay = 0.75,
      .nonfinite_count = at::Tensor({1}, at::kLong),
      .step_weight = 0.25,
  };
  std::vector<double> weights = filled(at::Tensor({2, rows}, at::kDouble), random, 0.5, 0.1).values();
  for (int64_t row = 0; towers && row < rows; ++row) weights.push_back(static_cast<double>(row / 2));
  update.weights.set_values(weights);
  update.nonfinite_count.zero_();
  if (towers) update.tower_running = filled(at::Tensor({(rows + 1) / 2, 2, channels}, type), random, 1, 0.1);
  return update;
}

// Renormalisation by running statistics, which some channels exceed.
inline Renormalisation renormalisation(const RunningUpdate& update) {
  return {.running = update.running, .r_max = 1.5, .d_max = 0.7};
}

}  // namespace bnlab::kernels::emulated
