// The CPU half of the kernels: each sweep over the units of cpu_units.hpp, with the loops of the instruction
// set that this CPU has. BNLAB_CPU_LEVEL (baseline, avx2, avx512) overrides the choice.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

#include "harness/cpu_kernels.hpp"
#include "harness/error.hpp"
#include "harness/network.hpp"
#include "strategies/kernels/cpu_loops.hpp"
#include "strategies/kernels/cpu_units.hpp"

namespace bnlab::kernels::cpu {
namespace {

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

template <class T, class A>
struct Numbers {
  using Memory = T;
  using Compute = A;
  static const Loops<T, A>& loops(const Level& level) {
    if constexpr (std::is_same_v<T, double>) return level.f64;
    if constexpr (std::is_same_v<T, float>) return level.f32;
    if constexpr (std::is_same_v<T, Bfloat16>) return level.bf16;
  }
};

// Which gradients pass in a unit.
template <class T, class A>
class Mask {
 public:
  // Takes two arrays of the scratch from `array` on.
  Mask(const Backward& in, Scratch<A>& scratch, int64_t array, const Unit& unit) : y_(data<T>(in.y)) {
    if (in.from_input.scale.defined()) {
      scale_ = scratch.expand(array, in.from_input.scale, unit);
      shift_ = scratch.expand(array + 1, in.from_input.shift, unit);
    }
  }
  // In the run at this offset, whose channels begin at `channel` of the expanded arrays.
  Passing<T, A> at(int64_t offset, int64_t channel) const {
    if (scale_ != nullptr) return {nullptr, scale_ + channel, shift_ + channel};
    return {at_offset(y_, offset), nullptr, nullptr};
  }

 private:
  const T* y_;
  const A* scale_ = nullptr;
  const A* shift_ = nullptr;
};

// Calls f with the Numbers of a dtype (float16 never comes here).
template <class F>
void dispatch(at::ScalarType dtype, F f) {
  if (dtype == at::kDouble) {
    f(Numbers<double, double>{});
  } else if (dtype == at::kFloat) {
    f(Numbers<float, float>{});
  } else {
    f(Numbers<Bfloat16, float>{});
  }
}

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
  dispatch(x.scalar_type(), [&](auto numbers) {
    using T = typename decltype(numbers)::Memory;
    using A = typename decltype(numbers)::Compute;
    const auto& loops = numbers.loops(level);
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

void backward_sums(const Layout& layout, const Offsets& offsets, const Backward& in, at::Tensor& out) {
  const int64_t channels = layout.channels;
  std::vector<double> total(static_cast<size_t>(out.numel()));
  dispatch(in.x.scalar_type(), [&](auto numbers) {
    using T = typename decltype(numbers)::Memory;
    using A = typename decltype(numbers)::Compute;
    const auto& loops = numbers.loops(chosen_level());
    const Plan plan = make_plan(layout, offsets, loops.lanes);
    reduce<A>(
        plan, layout, total.data(), 2 * channels, 5,
        [&](Scratch<A>& scratch, const Unit& unit, double* sum_g, double* sum_gx) {
          const A* mean = scratch.expand(2, in.mean, unit);
          const Mask<T, A> mask(in, scratch, 3, unit);
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

void normalise(const Layout& layout, const Offsets& offsets, const Forward& in, at::Tensor& out) {
  dispatch(in.x.scalar_type(), [&](auto numbers) {
    using T = typename decltype(numbers)::Memory;
    using A = typename decltype(numbers)::Compute;
    const auto& loops = numbers.loops(chosen_level());
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

void backward_input(const Layout& layout, const Offsets& offsets, const Backward& in, const at::Tensor& a,
                    const at::Tensor& b, const at::Tensor& c, at::Tensor& out) {
  dispatch(in.x.scalar_type(), [&](auto numbers) {
    using T = typename decltype(numbers)::Memory;
    using A = typename decltype(numbers)::Compute;
    const auto& loops = numbers.loops(chosen_level());
    const Plan plan = make_plan(layout, offsets, loops.lanes);
    for_each_unit<A>(plan, 6, [&](Scratch<A>& scratch, const Unit& unit, int64_t) {
      const A* mean = scratch.expand(0, in.mean, unit);
      const A* first = scratch.expand(1, a, unit);
      const A* second = scratch.expand(2, b, unit);
      const A* third = scratch.expand(3, c, unit);
      const Mask<T, A> mask(in, scratch, 4, unit);
      for_each_run(unit, [&](int64_t offset, int64_t n, int64_t run) {
        const int64_t k = run * plan.period.length();
        loops.input(data<T>(in.dy) + offset, data<T>(in.x) + offset, mask.at(offset, k),
                    data<T>(out) + offset, n, plan.period.length(), mean + k, first + k, second + k,
                    third + k);
      });
    });
  });
}

void backward_residual(const at::Tensor& dy, const at::Tensor& y, at::Tensor& out) {
  dispatch(dy.scalar_type(), [&](auto numbers) {
    using T = typename decltype(numbers)::Memory;
    const auto& loops = numbers.loops(chosen_level());
    const int64_t blocks = (dy.numel() + kMinimumWork - 1) / kMinimumWork;
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kMinimumWork, last = std::min(end * kMinimumWork, dy.numel());
      loops.mask(data<T>(dy) + first, data<T>(y) + first, data<T>(out) + first, last - first);
    });
  });
}

namespace {

const CpuKernels registered_kernels([]() -> std::string { return chosen_level().name; });

}  // namespace

}  // namespace bnlab::kernels::cpu
