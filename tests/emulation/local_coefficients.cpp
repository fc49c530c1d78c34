// local_forward and local_backward on the emulated GPU against their single steps, which the other files hold
// to float64.
#include "tests/emulation/problems.hpp"
#include "tests/emulation/steps.hpp"

namespace bnlab::kernels::emulated {
namespace {

using at::Tensor;

constexpr double kEps = 1e-3;

RunningUpdate update_of(const Problem& problem) {
  const auto slices = static_cast<int64_t>(problem.offsets.size()) - 1;
  return running_update(slices, problem.sizes[1], statistics_type(problem.type), /*towers=*/true);
}

class LocalCheck {
 public:
  explicit LocalCheck(const Problem& problem) : problem_(problem) {
    std::mt19937 random(7);
    const auto tensor = [&] {
      return filled(empty_in(problem.layout, problem.sizes, problem.type), random, problem.centre, 2);
    };
    const auto numbers = [&] {
      return filled(Tensor({problem.sizes[1]}, statistics_type(problem.type)), random, 1, 0.5);
    };
    x_ = tensor();
    dy_ = tensor();
    weight_ = numbers();
    bias_ = numbers();
    if (x_.numel() > 0) first_channel().set_values({std::nan("")});  // one channel of a slice is not finite
    const NormOptions plain{.eps = kEps, .weight = weight_, .bias = bias_};
    NormOptions mean_only = plain, renorm = plain;
    mean_only.mean_only = true;
    renorm.renorm = renormalisation(update_of(problem));
    for (const auto order : {emulation::Order::descending, emulation::Order::shuffled}) {
      emulation::set_order(order);
      check(plain, /*through_moments=*/true);
      check(renorm, true);
      check(mean_only, false);
    }
  }

  const std::string& mismatch() const { return comparison_.mismatch(); }

 private:
  Tensor first_channel() const {
    Tensor one = x_;
    while (one.dim() > 0) one = one.select(0, 0);
    return one;
  }

  // For each 256 slices. Where there is nothing to do, other steps are taken.
  template <class Work>
  auto in_two_launches(const Work& work) {
    const int64_t each = (static_cast<int64_t>(problem_.offsets.size()) - 1 + 255) / 256;
    return x_.numel() == 0 ? work() : comparison_.launches(2 * each, work);
  }

  void check(const NormOptions& options, bool through_moments) {
    const Offsets& offsets = problem_.offsets;
    const RunningUpdate expected_update = update_of(problem_), update = update_of(problem_);
    const Tensor rows = moments(x_, offsets);
    const Coefficients k = forward_coefficients(rows, options, statistics_type(problem_.type));
    update_running(expected_update, rows);
    const Tensor y = normalise(x_, offsets, k.mean, k.scale, k.shift, Activation::relu, {});

    const LocalForward local = in_two_launches([&] {
      const LocalForward made = local_forward(x_, offsets, options, update);
      const Coefficients& got = made.coefficients;
      normalise(x_, offsets, got.mean, got.scale, got.shift, Activation::relu, {});
      return made;
    });
    comparison_.same("moments", local.rows, rows);
    comparison_.same(local.coefficients, k);
    comparison_.same(update, expected_update);

    const Incoming incoming{
        .dy = dy_,
        .x = x_,
        .y = y,
        .offsets = offsets,
        .activation = Activation::relu,
        .mean = k.mean,
        .from_input = {.scale = k.scale, .shift = k.shift},
    };
    const Tensor sums = incoming.sums(k.mean);
    const BackwardCoefficients expected =
        backward_coefficients(k, sums, through_moments ? sums : Tensor(), options.mean_only, weight_);
    const BackwardCoefficients back = in_two_launches([&] {
      const BackwardCoefficients made =
          local_backward(incoming, k, through_moments, options.mean_only, weight_);
      incoming.input_gradient(made.mean, made.a, made.b, made.c);
      return made;
    });
    comparison_.same(back, expected);
  }

  const Problem& problem_;
  Tensor x_, dy_, weight_, bias_;
  StepsComparison comparison_;
};

}  // namespace

std::string mismatch_of_local_coefficients(const Problem& problem) {
  return LocalCheck(problem).mismatch();
}

}  // namespace bnlab::kernels::emulated
