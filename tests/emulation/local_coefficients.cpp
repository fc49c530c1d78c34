// local_forward and local_backward on the emulated GPU against their single steps, which the other files hold
// to float64.
#include "tests/emulation/device.hpp"
#include "tests/emulation/problems.hpp"
#include "tests/emulation/values.hpp"

namespace bnlab::kernels::emulated {
namespace {

using at::Tensor;

constexpr double kEps = 1e-3;

// Running statistics and what their update needs, with two slices to a tower; the same in every call.
RunningUpdate update_of(const Problem& problem) {
  std::mt19937 random(11);
  const at::ScalarType type = statistics_type(problem.type);
  const auto slices = static_cast<int64_t>(problem.offsets.size()) - 1, channels = problem.sizes[1];
  std::vector<double> weights = filled(Tensor({2, slices}, at::kDouble), random, 0.5, 0.1).values();
  for (int64_t slice = 0; slice < slices; ++slice) weights.push_back(static_cast<double>(slice / 2));
  const RunningUpdate update{
      .running = filled(Tensor({2, channels}, type), random, 1, 0.1),
      .weights = Tensor({3, slices}, at::kDouble),
      .decay = 0.75,
      .nonfinite_count = Tensor({1}, at::kLong),
      .tower_running = filled(Tensor({(slices + 1) / 2, 2, channels}, type), random, 1, 0.1),
      .step_weight = 0.25,
  };
  update.weights.set_values(weights);
  update.nonfinite_count.zero_();
  return update;
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
    renorm.renorm = Renormalisation{.running = update_of(problem).running, .r_max = 1.5, .d_max = 0.7};
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

  void check(const NormOptions& options, bool through_moments) {
    const Offsets& offsets = problem_.offsets;
    const RunningUpdate expected_update = update_of(problem_), update = update_of(problem_);
    const Tensor rows = moments(x_, offsets);
    const Coefficients k = forward_coefficients(rows, options, statistics_type(problem_.type));
    update_running(expected_update, rows);
    const Tensor y = normalise(x_, offsets, k.mean, k.scale, k.shift, Activation::relu, {});

    int64_t launches = emulation::counts().launches;
    const LocalForward local = local_forward(x_, offsets, options, update);
    const Coefficients& got = local.coefficients;
    normalise(x_, offsets, got.mean, got.scale, got.shift, Activation::relu, {});
    expect_two_launches(launches);
    expect("moments", local.rows, rows);
    expect("mean", got.mean, k.mean);
    expect("invstd", got.invstd, k.invstd);
    expect("scale", got.scale, k.scale);
    expect("shift", got.shift, k.shift);
    if (options.renorm) expect("r", got.r, k.r);
    if (options.renorm) expect("d", got.d, k.d);
    expect("running statistics", update.running, expected_update.running);
    expect("running statistics of towers", update.tower_running, expected_update.tower_running);
    expect("their number", update.nonfinite_count, expected_update.nonfinite_count);

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
    launches = emulation::counts().launches;
    const BackwardCoefficients back =
        local_backward(incoming, k, through_moments, options.mean_only, weight_);
    incoming.input_gradient(back.mean, back.a, back.b, back.c);
    expect_two_launches(launches);
    expect("a", back.a, expected.a);
    expect("b", back.b, expected.b);
    expect("c", back.c, expected.c);
    expect("dweight", back.dweight, expected.dweight);
    expect("dbias", back.dbias, expected.dbias);
  }

  void expect(const char* what, const Tensor& got, const Tensor& expected) {
    comparison_.expect(same_bits(got, expected), what);
  }
  // One more for each sweep where there are more slices than one launch takes; none where there is nothing to
  // do.
  void expect_two_launches(int64_t before) {
    const int64_t each = (static_cast<int64_t>(problem_.offsets.size()) - 1 + 255) / 256;
    if (x_.numel() > 0)
      comparison_.expect(emulation::counts().launches - before == 2 * each, "the number of launches");
  }

  const Problem& problem_;
  Tensor x_, dy_, weight_, bias_;
  Comparison comparison_;
};

}  // namespace

std::string mismatch_of_local_coefficients(const Problem& problem) {
  return LocalCheck(problem).mismatch();
}

}  // namespace bnlab::kernels::emulated
