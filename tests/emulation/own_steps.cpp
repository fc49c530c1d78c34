// The functions of own.hpp on the emulated GPU against the single steps, which the other files hold to float64.
#include "strategies/kernels/own.hpp"

#include "tests/emulation/device.hpp"
#include "tests/emulation/problems.hpp"
#include "tests/emulation/values.hpp"

namespace bnlab::kernels::emulated {
namespace {

using at::Tensor;

constexpr double kEps = 1e-3;

// A running pair and what its update needs, with two slices to a tower; the same for the same seed.
PairStep pair_of(const Problem& problem) {
  std::mt19937 random(11);
  const at::ScalarType type = statistics_type(problem.type);
  const auto slices = static_cast<int64_t>(problem.offsets.size()) - 1;
  const Tensor weights({3, slices}, at::kDouble);
  std::vector<double> values = filled(Tensor({2, slices}, at::kDouble), random, 0.5, 0.1).values();
  for (int64_t slice = 0; slice < slices; ++slice) {
    values.push_back(static_cast<double>(slice / 2));
  }
  weights.set_values(values);
  const PairStep step{filled(Tensor({2, problem.sizes[1]}, type), random, 1, 0.1),
                      weights,
                      0.75,
                      Tensor({1}, at::kLong),
                      filled(Tensor({(slices + 1) / 2, 2, problem.sizes[1]}, type), random, 1, 0.1),
                      0.25};
  step.nonfinite.zero_();
  return step;
}

class OwnCheck {
 public:
  explicit OwnCheck(const Problem& problem) : problem_(problem) {
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
    const Renorm limits{pair_of(problem).held, 1.5, 0.7};
    for (const auto order : {emulation::Order::descending, emulation::Order::shuffled}) {
      emulation::set_order(order);
      check(std::nullopt, /*mean_only=*/false, /*through_moments=*/true);
      check(limits, false, true);
      check(std::nullopt, true, false);
    }
  }

  const std::string& mismatch() const { return comparison_.mismatch(); }

 private:
  Tensor first_channel() const {
    Tensor one = x_;
    while (one.dim() > 0) one = one.select(0, 0);
    return one;
  }

  void check(const std::optional<Renorm>& renorm, bool mean_only, bool through_moments) {
    const Offsets& offsets = problem_.offsets;
    const at::ScalarType statistics = statistics_type(problem_.type);
    const PairStep expected_pair = pair_of(problem_), pair = pair_of(problem_);
    const Tensor rows = moments(x_, offsets);
    const Coefficients k = finish_forward(rows, kEps, mean_only, weight_, bias_, statistics, renorm);
    update_pair(expected_pair, rows);
    const Tensor y = normalise(x_, offsets, k.mean, k.scale, k.shift, Activation::relu, {});

    int64_t launches = emulation::counts().launches;
    const OwnForward own =
        own_forward(x_, offsets, kEps, mean_only, weight_, bias_, renorm, std::optional<PairStep>(pair));
    const Coefficients& got = own.coefficients;
    normalise(x_, offsets, got.mean, got.scale, got.shift, Activation::relu, {});
    expect_two_launches(launches);
    expect("moments", own.rows, rows);
    expect("mean", got.mean, k.mean);
    expect("invstd", got.invstd, k.invstd);
    expect("scale", got.scale, k.scale);
    expect("shift", got.shift, k.shift);
    if (renorm) expect("r", got.r, k.r);
    if (renorm) expect("d", got.d, k.d);
    expect("the pair", pair.held, expected_pair.held);
    expect("the pairs of towers", pair.towers, expected_pair.towers);
    expect("their number", pair.nonfinite, expected_pair.nonfinite);

    const Incoming incoming{dy_, x_, y, offsets, Activation::relu, k.mean, {k.scale, k.shift}};
    const Tensor sums = incoming.sums(k.mean);
    const BackwardCoefficients expected =
        finish_backward(k, sums, through_moments ? sums : Tensor(), mean_only, weight_);
    launches = emulation::counts().launches;
    const BackwardCoefficients back = own_backward(incoming, k, through_moments, mean_only, weight_);
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
  // One more for each sweep where there are more slices than one launch takes; none where there is nothing to do.
  void expect_two_launches(int64_t before) {
    const int64_t each = (static_cast<int64_t>(problem_.offsets.size()) - 1 + 255) / 256;
    if (x_.numel() > 0) {
      comparison_.expect(emulation::counts().launches - before == 2 * each, "the number of launches");
    }
  }

  const Problem& problem_;
  Tensor x_, dy_, weight_, bias_;
  Comparison comparison_;
};

}  // namespace

std::string mismatch_of_own_steps(const Problem& problem) {
  return OwnCheck(problem).mismatch();
}

}  // namespace bnlab::kernels::emulated
