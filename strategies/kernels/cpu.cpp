// The CPU half of the sweeps. A tensor is cut into units of work, the units are spread over threads, and
// their partial results are merged. Units depend on shapes alone and are merged in a fixed order, so that the
// number of threads never changes a bit of a result. Within a unit the loops of cpu_loops.inc work, built for
// the instruction set that this CPU has. BNLAB_CPU_LEVEL (baseline, avx2, avx512) overrides the choice.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "harness/support/cpu_kernels.hpp"
#include "harness/support/error.hpp"
#include "strategies/kernels/backend.hpp"
#include "strategies/kernels/cpu_loops.hpp"

#if AT_PARALLEL_OPENMP && !defined(_OPENMP)
#error "compile with -fopenmp: without it at::parallel_for runs on one thread and says nothing"
#endif

namespace bnlab::kernels::cpu {
namespace {

constexpr int64_t kBlock = 8192;         // elements read twice in a row: fits the first-level cache
constexpr int64_t kBlocksPerUnit = 8;    // channels_last only
constexpr int64_t kMinimumWork = 32768;  // elements worth a thread
constexpr int64_t kUnitWidth = 8192;  // elements in a row of memory that a unit takes at least (contiguous)

template <class T>
T* at_offset(T* pointer, int64_t offset) {
  return pointer ? pointer + offset : nullptr;
}

// A part of one slice that one thread works on: some rows with all channels as one run (channels_last), or
// all rows of neighbouring channels, a run for the plane of each (contiguous). Small planes go together, so
// that memory is read in long rows.
struct Unit {
  int64_t slice = 0, channel = 0, begin = 0;
  int64_t length = 0;               // elements of a run
  int64_t runs = 1;                 // side by side in memory
  int64_t repeats = 1, stride = 0;  // how often they come, and how far apart
  int64_t before = 0;               // elements per channel in the slice's earlier units
};

struct Plan {
  Period period;
  int64_t block = 0;      // elements
  int64_t grain = 1;      // units worth a thread
  int64_t most_runs = 1;  // side by side in a unit
  std::vector<Unit> units;
};

Plan make_plan(const Layout& layout, const Offsets& offsets, int64_t lanes) {
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
        plan.units.push_back({
            .slice = slice,
            .channel = 0,
            .begin = offsets[s] * row + done,
            .length = std::min(step, rows * row - done),
            .before = done / channels,
        });
      }
    } else {
      for (int64_t c = 0; c < channels; c += plan.most_runs) {
        plan.units.push_back({
            .slice = slice,
            .channel = c,
            .begin = offsets[s] * row + c * layout.plane,
            .length = layout.plane,
            .runs = std::min(plan.most_runs, channels - c),
            .repeats = rows,
            .stride = row,
        });
      }
    }
  }
  const int64_t units = static_cast<int64_t>(plan.units.size());
  const int64_t elements = std::max<int64_t>(1, layout.rows * row);
  plan.grain = std::max<int64_t>(1, kMinimumWork * units / elements);
  return plan;
}

// A thread's own arrays, with `period.length()` entries for each of a unit's runs side by side, aligned for
// whole-vector access.
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
    for (int64_t run = 0; run < unit.runs; ++run, source += period_.width)
      for (int64_t copy = 0; copy < period_.copies; ++copy, target += period_.width)
        std::copy_n(source, period_.width, target);
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

// f(offset, elements, run) for every whole run of a unit, in the order of memory; `run` counts those side by
// side.
template <class F>
void for_each_run(const Unit& unit, F f) {
  for (int64_t repeat = 0; repeat < unit.repeats; ++repeat)
    for (int64_t run = 0; run < unit.runs; ++run)
      f(unit.begin + repeat * unit.stride + run * unit.length, unit.length, run);
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

// Two float64 numbers per slice and channel, at total[slice * stride + channel] and C further on, made by
// f(scratch, unit, first, second), which starts from zeros. In the contiguous layout every unit has channels
// of its own. In channels_last every unit has partial results of all channels, and merge(unit, count per
// channel, first, second, part_first, part_second) adds them to the whole, in the order of the units.
template <class A, class F, class MergeParts>
void reduce(const Plan& plan, const Layout& layout, double* total, int64_t stride, int64_t arrays, F f,
            MergeParts merge) {
  const int64_t channels = layout.channels;
  const auto whole = [&](const Unit& unit) { return total + unit.slice * stride + unit.channel; };
  if (!layout.channels_last) {
    for_each_unit<A>(plan, arrays, [&](Scratch<A>& scratch, const Unit& unit, int64_t) {
      f(scratch, unit, whole(unit), whole(unit) + channels);
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
    merge(unit, unit.length / channels, whole(unit), whole(unit) + channels, part, part + channels);
    part += 2 * channels;
  }
}

// The loops for this CPU

std::vector<const Level*> available_levels() {  // slowest first
  std::vector<const Level*> levels = {&baseline::level()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) levels.push_back(&avx2::level());
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("fma")) {
    levels.push_back(&avx512::level());
  }
#endif
  return levels;
}

const Level& chosen_level() {
  static const std::vector<const Level*> levels = available_levels();
  const char* wanted = std::getenv("BNLAB_CPU_LEVEL");
  if (wanted == nullptr || *wanted == '\0') return *levels.back();
  std::string names;
  for (const Level* level : levels) {
    if (level->name == std::string(wanted)) return *level;
    names += (names.empty() ? "" : ", ") + std::string(level->name);
  }
  throw Error(Error::Kind::usage, "BNLAB_CPU_LEVEL: expected one this CPU has (" + names + "), got '" +
                                      std::string(wanted) + "'");
}

// The sweeps

// Which gradients pass the activation in a unit.
template <class T, class A>
class UnitMask {
 public:
  // Takes two arrays of the scratch from `array` on.
  UnitMask(const BackwardInputs& in, Scratch<A>& scratch, int64_t array, const Unit& unit)
      : y_(data<T>(in.y)) {
    if (in.from_input.scale.defined()) {
      scale_ = scratch.expand(array, in.from_input.scale, unit);
      shift_ = scratch.expand(array + 1, in.from_input.shift, unit);
    }
  }
  // In the run at this offset, whose channels begin at `channel` of the expanded arrays.
  ReluMask<T, A> at(int64_t offset, int64_t channel) const {
    if (scale_ != nullptr) return {.scale = scale_ + channel, .shift = shift_ + channel};
    return {.y = at_offset(y_, offset)};
  }

 private:
  const T* y_;
  const A* scale_ = nullptr;
  const A* shift_ = nullptr;
};

// Calls f with the loops of a dtype (float16 never comes here).
template <class F>
void dispatch(at::ScalarType dtype, F f) {
  const Level& level = chosen_level();
  dtype == at::kDouble ? f(level.f64) : dtype == at::kFloat ? f(level.f32) : f(level.bf16);
}

const CpuKernels registered_kernels([]() -> std::string { return chosen_level().name; });

}  // namespace

void moments(const Layout& layout, const Offsets& offsets, const at::Tensor& x, at::Tensor& out) {
  const Level& level = chosen_level();
  const int64_t stride = 1 + 2 * layout.channels;
  double* packed = data<double>(out);
  std::fill_n(packed, out.numel(), 0.0);
  for (size_t s = 0; s + 1 < offsets.size(); ++s) {
    packed[static_cast<int64_t>(s) * stride] =
        static_cast<double>((offsets[s + 1] - offsets[s]) * layout.plane);
  }
  dispatch(x.scalar_type(), [&]<class T, class A>(const Loops<T, A>& loops) {
    const Plan plan = make_plan(layout, offsets, loops.lanes);
    reduce<A>(
        plan, layout, packed + 1, stride, 3,
        [&](Scratch<A>& scratch, const Unit& unit, double* mean, double* m2) {
          for_each_block(unit, plan, [&](int64_t offset, int64_t n, int64_t run, int64_t before) {
            loops.moments(data<T>(x) + offset, n, plan.period, scratch.array(0), before, mean + run,
                          m2 + run);
          });
        },
        [&](const Unit& unit, int64_t count, double* mean, double* m2, const double* part_mean,
            const double* part_m2) {
          level.merge(layout.channels, unit.before, mean, m2, count, part_mean, part_m2);
        });
  });
}

void backward_sums(const Layout& layout, const Offsets& offsets, const BackwardInputs& in, at::Tensor& out) {
  const int64_t channels = layout.channels;
  std::vector<double> total(static_cast<size_t>(out.numel()));
  dispatch(in.x.scalar_type(), [&]<class T, class A>(const Loops<T, A>& loops) {
    const Plan plan = make_plan(layout, offsets, loops.lanes);
    reduce<A>(
        plan, layout, total.data(), 2 * channels, 5,
        [&](Scratch<A>& scratch, const Unit& unit, double* sum_g, double* sum_gx) {
          const A* mean = scratch.expand(2, in.mean, unit);
          const UnitMask<T, A> mask(in, scratch, 3, unit);
          for_each_block(unit, plan, [&](int64_t offset, int64_t n, int64_t run, int64_t) {
            const int64_t k = run * plan.period.length();
            loops.sums(data<T>(in.dy) + offset, data<T>(in.x) + offset, mask.at(offset, k), n, plan.period,
                       mean + k, scratch.array(0), sum_g + run, sum_gx + run);
          });
        },
        [&](const Unit&, int64_t, double* sum_g, double* sum_gx, const double* part_g,
            const double* part_gx) {
          for (int64_t c = 0; c < channels; ++c) sum_g[c] += part_g[c];
          for (int64_t c = 0; c < channels; ++c) sum_gx[c] += part_gx[c];
        });
    std::transform(total.begin(), total.end(), data<A>(out), [](double v) { return static_cast<A>(v); });
  });
}

void normalise(const Layout& layout, const Offsets& offsets, const NormaliseInputs& in, at::Tensor& out) {
  dispatch(in.x.scalar_type(), [&]<class T, class A>(const Loops<T, A>& loops) {
    const Plan plan = make_plan(layout, offsets, loops.lanes);
    for_each_unit<A>(plan, 3, [&](Scratch<A>& scratch, const Unit& unit, int64_t) {
      const A* mean = scratch.expand(0, in.mean, unit);
      const A* scale = scratch.expand(1, in.scale, unit);
      const A* shift = scratch.expand(2, in.shift, unit);
      for_each_run(unit, [&](int64_t offset, int64_t n, int64_t run) {
        const int64_t k = run * plan.period.length();
        loops.normalise(data<T>(in.x) + offset, at_offset(data<T>(in.residual), offset),
                        data<T>(out) + offset, n, plan.period.length(), mean + k, scale + k, shift + k,
                        in.activation == Activation::relu);
      });
    });
  });
}

void backward_input(const Layout& layout, const Offsets& offsets, const BackwardInputs& in,
                    const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, at::Tensor& out) {
  dispatch(in.x.scalar_type(), [&]<class T, class A>(const Loops<T, A>& loops) {
    const Plan plan = make_plan(layout, offsets, loops.lanes);
    for_each_unit<A>(plan, 6, [&](Scratch<A>& scratch, const Unit& unit, int64_t) {
      const A* mean = scratch.expand(0, in.mean, unit);
      const A* unit_a = scratch.expand(1, a, unit);
      const A* unit_b = scratch.expand(2, b, unit);
      const A* unit_c = scratch.expand(3, c, unit);
      const UnitMask<T, A> mask(in, scratch, 4, unit);
      for_each_run(unit, [&](int64_t offset, int64_t n, int64_t run) {
        const int64_t k = run * plan.period.length();
        loops.input(data<T>(in.dy) + offset, data<T>(in.x) + offset, mask.at(offset, k),
                    data<T>(out) + offset, n, plan.period.length(), mean + k, unit_a + k, unit_b + k,
                    unit_c + k);
      });
    });
  });
}

void backward_residual(const at::Tensor& dy, const at::Tensor& y, at::Tensor& out) {
  dispatch(dy.scalar_type(), [&]<class T, class A>(const Loops<T, A>& loops) {
    const int64_t blocks = (dy.numel() + kMinimumWork - 1) / kMinimumWork;
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kMinimumWork, last = std::min(end * kMinimumWork, dy.numel());
      loops.residual(data<T>(dy) + first, data<T>(y) + first, data<T>(out) + first, last - first);
    });
  });
}

}  // namespace bnlab::kernels::cpu
