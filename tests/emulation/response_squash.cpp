// The kernels of filter_response_norm and dynamic_tanh on the emulated GPU against float64 loops, and the
// bytes that they move.
#include <algorithm>
#include <functional>
#include <tuple>

#include "strategies/kernels/response.hpp"
#include "strategies/kernels/squash.hpp"
#include "tests/emulation/device.hpp"
#include "tests/emulation/problems.hpp"
#include "tests/emulation/values.hpp"

namespace bnlab::kernels::emulated {
namespace {

using at::Tensor;

constexpr double kEps = 1e-2;

// What a layer takes and gives, dense, forward and backward.
struct Site {
  bool responds = false;  // filter_response_norm; else dynamic_tanh
  LayerTensors in = {};
  Tensor y = {}, dx = {};
  Coefficients k = {};                                  // of filter_response_norm
  Tensor alpha = {}, weight = {}, bias = {}, tau = {};  // weight undefined: neither weight nor bias
  Tensor dalpha = {}, dweight = {}, dbias = {}, dtau = {};
  int64_t forward_bytes = 0, backward_bytes = 0, forward_launches = 0, backward_launches = 0;
};

// Calls `work` and returns how many launches it takes and bytes it moves.
std::pair<int64_t, int64_t> counted(const std::function<void()>& work) {
  const auto before = emulation::counts();
  work();
  return {emulation::counts().launches - before.launches, emulation::counts().bytes - before.bytes};
}

void run(Site& s) {
  const ResponseOptions response{.eps = kEps, .weight = s.weight, .bias = s.bias, .threshold = s.tau};
  const SquashOptions squash{.alpha = s.alpha, .weight = s.weight, .bias = s.bias};
  LayerTensors in = s.in;
  in.out = s.y;
  in.dy = in.dresidual = {};
  std::tie(s.forward_launches, s.forward_bytes) = counted(
      [&] { s.responds ? cuda::response_forward(in, s.k, response) : cuda::squash_forward(in, squash); });
  in = s.in;
  in.out = s.dx;
  if (!s.responds && in.residual.defined()) in.residual = s.y;
  std::tie(s.backward_launches, s.backward_bytes) = counted([&] {
    if (s.responds)
      cuda::response_backward(in, s.k, response,
                              {.dweight = s.dweight, .dbias = s.dbias, .dthreshold = s.dtau});
    else
      cuda::squash_backward(in, squash, {.dalpha = s.dalpha, .dweight = s.dweight, .dbias = s.dbias});
  });
}

Site site_of(const Problem& problem, bool responds, bool affine, bool threshold) {
  std::mt19937 random(7);
  const auto tensor = [&](double centre, const std::string& layout) {
    return filled(empty_in(layout, problem.sizes, problem.type), random, centre, 2);
  };
  const int64_t samples = problem.sizes[0], channels = problem.sizes[1];
  const auto type = statistics_type(problem.type);
  const auto numbers = [&](double centre) { return filled(Tensor({channels}, type), random, centre, 1); };
  const auto room = [&](const Tensor& parameter) {
    return parameter.defined() ? Tensor(parameter.sizes(), type) : Tensor();
  };
  Offsets offsets{0};
  while (offsets.back() < samples) offsets.push_back(responds ? offsets.back() + 1 : samples);
  const Tensor x = tensor(problem.centre, problem.layout), dy = tensor(0.3, problem.layout);
  const Tensor residual =
      !problem.residual ? Tensor() : tensor(0, problem.unaligned_residual ? "unaligned" : problem.layout);
  Site site{.responds = responds, .in = layer_tensors("test", x, offsets, residual, problem.activation)};
  site.y = site.in.out;
  site.dx = at::empty_like(site.y);
  site.in.dy = like("test", "dy", dy, site.in.x);
  if (problem.residual) site.in.dresidual = at::empty_like(site.y);
  for (Tensor* of : {&site.k.invstd, &site.k.scale, &site.k.shift}) *of = Tensor({samples, channels}, type);
  site.alpha = Tensor({1}, type);
  site.alpha.set_values({0.4});
  if (affine) {
    site.weight = numbers(1);
    site.bias = numbers(0.2);
  }
  if (threshold) site.tau = numbers(0);
  site.dalpha = room(site.alpha);
  site.dweight = room(site.weight);
  site.dbias = room(site.bias);
  site.dtau = room(site.tau);
  return site;
}

std::vector<double> numbers_of(const Tensor& t, size_t count, double otherwise) {
  return t.defined() ? t.values() : std::vector<double>(count, otherwise);
}

// The value of `make`, computed in the precision of the statistics as the kernels do, on which signs depend.
template <class Make>
double rounded(bool wide, const Make& make) {
  return wide ? make(double()) : static_cast<double>(make(float()));
}

class Check {
 public:
  Check(const Problem& problem, const Site& s)
      : wide_(problem.type == at::kDouble),
        type_(problem.type),
        eps_(rounding(statistics_type(problem.type))),
        out_eps_(rounding(problem.type)),
        samples_(static_cast<size_t>(s.y.size(0))),
        channels_(static_cast<size_t>(s.y.size(1))),
        plane_(static_cast<size_t>(s.in.layout.plane)),
        relu_(s.in.relu),
        adds_(s.in.residual.defined()),
        x_(s.in.x.values()),
        dy_(s.in.dy.values()),
        residual_(numbers_of(s.in.residual, x_.size(), 0)),
        y_(s.y.values()),
        dx_(s.dx.values()),
        gamma_(numbers_of(s.weight, channels_, 1)),
        beta_(numbers_of(s.bias, channels_, 0)),
        tau_(numbers_of(s.tau, channels_, 0)) {}

  std::string of_response(const Site& s) {
    const auto invstd = s.k.invstd.values(), scales = s.k.scale.values(), shifts = s.k.shift.values();
    std::vector<double> dweight(channels_), dbias(channels_), dtau(channels_), sizes(channels_, 1e-30);
    const double n = static_cast<double>(plane_);
    for (size_t r = 0; r < samples_; ++r) {
      for (size_t c = 0; c < channels_; ++c) {
        const size_t k = r * channels_ + c;
        double squares = 0, sum_gx = 0, size_gx = 0;
        each(k, [&](size_t i) { squares += x_[i] * x_[i]; });
        const double inv = 1 / std::sqrt(squares / n + kEps);
        expect("invstd", k, invstd[k], inv, 30 * eps_ * inv);
        const double scale = scales[k], shift = shifts[k];
        expect("scale", k, scale, gamma_[c] * inv, 30 * eps_ * std::abs(gamma_[c] * inv));
        expect("shift", k, shift, beta_[c] - tau_[c], 4 * eps_ * (std::abs(beta_[c]) + std::abs(tau_[c])));
        each(k, [&](size_t i) {
          const double z = sum(x_[i], scale, shift, residual_[i], adds_);
          const double y = (relu_ ? std::max(z, 0.0) : z) + tau_[c];
          const double size = std::abs(x_[i] * scale) + std::abs(shift) + std::abs(residual_[i]);
          expect("response", i, y_[i], y,
                 std::abs(y) * out_eps_ + 4 * eps_ * (size + std::abs(tau_[c])) + smallest(type_));
          const bool passes = !relu_ || z > 0;
          gradient(s, i, passes);
          const double g = passes ? dy_[i] : 0;
          sum_gx += g * x_[i];
          size_gx += std::abs(g * x_[i]);
          dbias[c] += g;
          dtau[c] += dy_[i] - g;
          dweight[c] += inv * g * x_[i];
          sizes[c] += std::abs(dy_[i]) * (1 + std::abs(inv * x_[i]));
        });
        each(k, [&](size_t i) {
          const double g = !relu_ || sum(x_[i], scale, shift, residual_[i], adds_) > 0 ? dy_[i] : 0;
          const double through = gamma_[c] * inv * inv * inv / n * x_[i], dx = scale * g - through * sum_gx;
          const double size = std::abs(scale * g) + std::abs(through) * size_gx;
          expect("dx", i, dx_[i], dx, std::abs(dx) * out_eps_ + 60 * eps_ * size + smallest(type_));
        });
      }
    }
    parameters(s.dweight, dweight, sizes);
    parameters(s.dbias, dbias, sizes);
    parameters(s.dtau, dtau, sizes);
    const auto cuts =
        static_cast<int64_t>((samples_ + 255) / 256);  // of a sweep, which takes 256 samples at once
    return launches(s, 2 * cuts, 2 * cuts);
  }

  std::string of_squash(const Site& s) {
    const double alpha = s.alpha.values()[0];
    std::vector<double> dalpha(1), size_alpha(1, 1e-30), dweight(channels_), dbias(channels_),
        sizes(channels_, 1e-30);
    for (size_t k = 0; k < samples_ * channels_; ++k) {
      const size_t c = k % channels_;
      each(k, [&](size_t i) {
        const double t = rounded(wide_, [&](auto a) {
          return std::tanh(static_cast<decltype(a)>(x_[i]) * static_cast<decltype(a)>(alpha));
        });
        const double z = sum(t, gamma_[c], beta_[c], residual_[i], adds_), y = relu_ ? std::max(z, 0.0) : z;
        const double size = std::abs(gamma_[c] * t) + std::abs(beta_[c]) + std::abs(residual_[i]);
        expect("squash", i, y_[i], y, std::abs(y) * out_eps_ + 4 * eps_ * size + smallest(type_));
        const bool passes = !relu_ || (adds_ ? y_[i] : z) > 0;
        gradient(s, i, passes);
        const double g = passes ? dy_[i] : 0, u = gamma_[c] * g * (1 - t * t), dx = alpha * u;
        expect("dx", i, dx_[i], dx,
               std::abs(dx) * out_eps_ + 8 * eps_ * std::abs(alpha * gamma_[c] * g) + smallest(type_));
        dbias[c] += g;
        dweight[c] += g * t;
        sizes[c] += std::abs(g);
        dalpha[0] += u * x_[i];
        size_alpha[0] += std::abs(gamma_[c] * g * x_[i]);
      });
    }
    parameters(s.dweight, dweight, sizes);
    parameters(s.dbias, dbias, sizes);
    parameters(s.dalpha, dalpha, size_alpha);
    return launches(s, 1, 2);
  }

 private:
  std::string launches(const Site& s, int64_t forward, int64_t backward) {
    comparison_.expect(s.forward_launches == forward && s.backward_launches == backward,
                       "the number of launches");
    return comparison_.mismatch();
  }
  template <class F>
  void each(size_t k, const F& f) const {
    for (size_t p = 0; p < plane_; ++p) f(k * plane_ + p);
  }
  double sum(double x, double scale, double shift, double added, bool adds) const {
    return rounded(wide_, [&](auto a) {
      using A = decltype(a);
      const A z = std::fma(static_cast<A>(x), static_cast<A>(scale), static_cast<A>(shift));
      return adds ? z + static_cast<A>(added) : z;
    });
  }
  void gradient(const Site& s, size_t i, bool passes) {
    if (dresidual_.empty() && s.in.dresidual.defined()) dresidual_ = s.in.dresidual.values();
    if (!dresidual_.empty()) expect("dresidual", i, dresidual_[i], passes ? dy_[i] : 0, 0);
  }
  void parameters(const Tensor& got, const std::vector<double>& expected, const std::vector<double>& sizes) {
    if (!got.defined()) return;
    const auto values = got.values();
    for (size_t c = 0; c < expected.size(); ++c)
      expect("a parameter's gradient", c, values[c], expected[c], 30 * eps_ * sizes[c]);
  }
  void expect(const char* what, size_t i, double got, double expected, double bound) {
    comparison_.expect(what, static_cast<int64_t>(i), 0, got, expected, bound);
  }

  bool wide_;
  at::ScalarType type_;
  double eps_, out_eps_;
  size_t samples_, channels_, plane_;
  bool relu_, adds_;
  std::vector<double> x_, dy_, residual_, y_, dx_, gamma_, beta_, tau_, dresidual_;
  Comparison comparison_;
};

bool same_results(const Site& a, const Site& b) {
  bool same = !a.responds || same_bits(a.k.invstd, b.k.invstd);
  for (const auto of : {&Site::y, &Site::dx, &Site::dalpha, &Site::dweight, &Site::dbias, &Site::dtau})
    same = same && (!(a.*of).defined() || same_bits(a.*of, b.*of));
  return same && (!a.in.dresidual.defined() || same_bits(a.in.dresidual, b.in.dresidual));
}

}  // namespace

std::string mismatch_of_response_and_squash(const Problem& given) {
  for (const bool responds : {true, false}) {
    Problem problem = given;
    if (responds)  // each sample has blocks of its own, and 400 of few channels take two launches
      problem.sizes[0] = std::min(problem.sizes[0], 1200 / problem.sizes[1]);
    if (Tensor(problem.sizes, problem.type).numel() == 0) return "";  // no kernel
    const bool affine = problem.sizes[1] != 24, threshold = problem.activation == Activation::relu && affine;
    const auto in_order = [&](emulation::Order order) {
      emulation::set_order(order);
      Site site = site_of(problem, responds, affine, threshold && responds);
      run(site);
      return site;
    };
    const Site site = in_order(emulation::Order::ascending);
    const bool turned = problem.type == at::kFloat || problem.type == at::kHalf;
    if (!same_results(site, in_order(turned ? emulation::Order::descending : emulation::Order::shuffled)))
      return "the order of threads or blocks changes the results";
    Check check(problem, site);
    const std::string text = responds ? check.of_response(site) : check.of_squash(site);
    if (!text.empty()) return text;
  }
  return "";
}

std::string mismatch_of_moved_bytes() {
  emulation::set_order(emulation::Order::ascending);
  Comparison comparison;
  for (const char* layout : {"channels_last", "contiguous"}) {
    for (const bool residual : {false, true}) {
      for (const bool responds : {true, false}) {
        const Problem problem{{8, 64, 12, 16}, {0, 8}, layout, at::kBFloat16, Activation::relu, residual};
        const int64_t more = residual ? 2 : 0, forward = responds ? 6 : 4,
                      backward = responds ? 10 + 3 * more : 6 + 2 * more;
        Site site = site_of(problem, responds, true, responds);
        run(site);
        comparison.expect(site.forward_bytes == (forward + more) * site.y.numel(), "bytes of a forward pass");
        comparison.expect(site.backward_bytes == backward * site.y.numel(), "bytes of a backward pass");
      }
    }
  }
  // A NaN stays in its element, or in its sample and channel.
  const Problem problem{{2, 4, 3, 4}, {0, 2}, "contiguous", at::kFloat, Activation::relu, false};
  for (const bool responds : {true, false}) {
    Site site = site_of(problem, responds, true, responds);
    site.in.x.select(0, 1).select(0, 2).select(0, 1).select(0, 3).set_values({std::nan("")});
    run(site);
    const auto y = site.y.values();
    for (size_t i = 0; i < y.size(); ++i)
      comparison.expect(std::isnan(y[i]) == (responds ? i / 12 == 6 : i == 6 * 12 + 7),
                        "a NaN leaves its place");
  }
  return comparison.mismatch();
}

}  // namespace bnlab::kernels::emulated
