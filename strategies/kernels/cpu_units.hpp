// How the CPU's sweeps are split: a tensor is cut into units of work, units are spread over threads, and their
// partial results are merged. Units depend on shapes alone and are merged in a fixed order, so the number of
// threads never changes a bit of the result.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "strategies/kernels/backend.hpp"
#include "strategies/kernels/cpu_loops.hpp"

#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "compile with -fopenmp: without it at::parallel_for runs on one thread and says nothing"
#endif

namespace bnlab::kernels::cpu {

constexpr int64_t kBlock = 8192;         // elements read twice in a row: fits the first-level cache
constexpr int64_t kBlocksPerUnit = 8;    // channels_last only
constexpr int64_t kMinimumWork = 32768;  // elements worth a thread
constexpr int64_t kUnitWidth = 8192;  // elements in a row of memory that a unit takes at least (contiguous)

template <class T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

template <class T>
T* at_offset(T* pointer, int64_t offset) {
  return pointer ? pointer + offset : nullptr;
}

// A part of one slice that one thread works on: some rows with all channels as one run (channels_last), or all rows of
// neighbouring channels, a run for the plane of each (contiguous). Small planes go together, so that memory is read in
// long rows.
struct Unit {
  int64_t slice, channel, begin, length;      // `length`: elements of a run
  int64_t runs = 1, repeats = 1, stride = 0;  // runs side by side; how often, and how far apart
  int64_t before = 0;                         // elements per channel in the slice's earlier units
};

struct Plan {
  Period period;
  int64_t block = 0;      // elements
  int64_t grain = 1;      // units worth a thread
  int64_t most_runs = 1;  // side by side in a unit
  std::vector<Unit> units;
};

inline Plan make_plan(const Layout& layout, const Offsets& offsets, int64_t lanes) {
  Plan plan;
  const int64_t channels = layout.channels;
  plan.period.width = layout.channels_last ? channels : 1;
  const int64_t fill = plan.period.width <= 4 * lanes ? 4 * lanes : lanes;
  plan.period.copies = fill / std::gcd(plan.period.width, fill);
  const int64_t length = plan.period.length();
  plan.block = length * std::max({kBlock / length, 16 / plan.period.copies, int64_t{1}});
  const int64_t row = channels * layout.plane;  // elements
  const int64_t step = kBlocksPerUnit * plan.block;
  if (!layout.channels_last)
    plan.most_runs = std::max<int64_t>(1, kUnitWidth / std::max<int64_t>(1, layout.plane));
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    const int64_t slice = static_cast<int64_t>(s), rows = offsets[s + 1] - offsets[s];
    if (rows == 0) continue;
    if (layout.channels_last) {
      for (int64_t done = 0; done < rows * row; done += step) {
        plan.units.push_back(
            {slice, 0, offsets[s] * row + done, std::min(step, rows * row - done), 1, 1, 0, done / channels});
      }
    } else {
      for (int64_t c = 0; c < channels; c += plan.most_runs) {
        plan.units.push_back({slice, c, offsets[s] * row + c * layout.plane, layout.plane,
                              std::min(plan.most_runs, channels - c), rows, row});
      }
    }
  }
  const int64_t units = static_cast<int64_t>(plan.units.size());
  const int64_t elements = std::max<int64_t>(1, layout.rows * row);
  plan.grain = std::max<int64_t>(1, kMinimumWork * units / elements);
  return plan;
}

// A thread's own arrays, with `period.length()` entries for each of a unit's runs side by side, aligned for whole-vector
// access.
template <class A>
class Scratch {
 public:
  Scratch(const Plan& plan, int64_t arrays)
      : period_(plan.period),
        length_(plan.period.length() * plan.most_runs),
        lines_(static_cast<size_t>(arrays * length_) * sizeof(A) / sizeof(Line) + 1) {}
  A* array(int64_t index) { return reinterpret_cast<A*>(lines_.data()) + index * length_; }
  // Array `index`, filled with a unit's channels of values [S, C], repeated for every copy.
  const A* expand(int64_t index, const at::Tensor& values, const Unit& unit) {
    const A* source = data<A>(values) + unit.slice * values.size(1) + unit.channel;
    A* target = array(index);
    for (int64_t run = 0; run < unit.runs; ++run, source += period_.width) {
      for (int64_t copy = 0; copy < period_.copies; ++copy, target += period_.width) {
        std::copy_n(source, period_.width, target);
      }
    }
    return array(index);
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  Period period_;
  int64_t length_;
  std::vector<Line> lines_;
};

// f(scratch, unit, index of the unit) for every unit, from many threads.
template <class A, class F>
void for_each_unit(const Plan& plan, int64_t arrays, F f) {
  at::parallel_for(0, static_cast<int64_t>(plan.units.size()), plan.grain, [&](int64_t begin, int64_t end) {
    Scratch<A> scratch(plan, arrays);
    for (int64_t u = begin; u < end; ++u) f(scratch, plan.units[static_cast<size_t>(u)], u);
  });
}

// f(offset, elements, run) for every whole run of a unit, in the order of memory; `run` counts those side by side.
template <class F>
void for_each_run(const Unit& unit, F f) {
  for (int64_t repeat = 0; repeat < unit.repeats; ++repeat) {
    for (int64_t run = 0; run < unit.runs; ++run) {
      f(unit.begin + repeat * unit.stride + run * unit.length, unit.length, run);
    }
  }
}

// f(offset, elements, run, elements of the run's channels that came before) for every block.
template <class F>
void for_each_block(const Unit& unit, const Plan& plan, F f) {
  for (int64_t repeat = 0; repeat < unit.repeats; ++repeat) {
    for (int64_t run = 0; run < unit.runs; ++run) {
      const int64_t begin = unit.begin + repeat * unit.stride + run * unit.length;
      for (int64_t b = 0; b < unit.length; b += plan.block) {
        f(begin + b, std::min(plan.block, unit.length - b), run,
          (repeat * unit.length + b) / plan.period.width);
      }
    }
  }
}

// Two float64 numbers per slice and channel, at total[slice * stride + channel] and C further on, made
// by f(scratch, unit, first, second), which starts from zeros. In the contiguous layout every unit owns
// its channels' numbers; in channels_last units have partial results, and merge(unit, their count per
// channel, first, second, part_first, part_second) takes them in, in order.
template <class A, class F, class Merge>
void reduce(const Plan& plan, const Layout& layout, double* total, int64_t stride, int64_t arrays, F f,
            Merge merge) {
  const int64_t channels = layout.channels;
  const auto owned = [&](const Unit& unit) { return total + unit.slice * stride + unit.channel; };
  if (!layout.channels_last) {
    for_each_unit<A>(plan, arrays, [&](Scratch<A>& scratch, const Unit& unit, int64_t) {
      f(scratch, unit, owned(unit), owned(unit) + channels);
    });
    return;
  }
  std::vector<double> parts(plan.units.size() * static_cast<size_t>(2 * channels));
  for_each_unit<A>(plan, arrays, [&](Scratch<A>& scratch, const Unit& unit, int64_t u) {
    double* part = parts.data() + u * 2 * channels;
    f(scratch, unit, part, part + channels);
  });
  const double* part = parts.data();
  for (const Unit& unit : plan.units) {
    merge(unit, unit.length / channels, owned(unit), owned(unit) + channels, part, part + channels);
    part += 2 * channels;
  }
}

}  // namespace bnlab::kernels::cpu
