// frozen: its base up to a training step; from then on the batch is normalised by the saved running
// statistics, which stay as they are at that moment, and weight and bias stay too unless train_affine
// (fine-tuning with frozen BN; late in training: Chen et al. 2017, DeepLab v3).
//   y = gamma (x - running_mean) s + beta, s = 1 / sqrt(running_var + eps)
//   dx = gamma s dy, dgamma = s sum dy (x - running_mean), dbeta = sum dy
#include <cmath>

#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "strategies/engine/wrapper.hpp"

namespace bnlab {
namespace {

class Frozen : public Wrapper {
 public:
  Frozen(const Json& options, const Context& context)
      : Wrapper(options, context),
        from_step_(first_step(options, context)),
        train_affine_(options.at("train_affine").get<bool>()) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override {
    sites_.push_back(site.name + ".");
    return Wrapper::norm(site);
  }

  at::Tensor forward(Network& network, const at::Tensor& images, const Pass& pass) override {
    if (pass.mode != Mode::train || pass.step.index < from_step_) {
      return Wrapper::forward(network, images, pass);
    }
    running_statistics()->freeze();  // merged once; every evaluation puts the same pair back
    Pass frozen = pass;
    frozen.mode = Mode::train_frozen;
    return Wrapper::forward(network, images, frozen);
  }

  bool trainable(const std::string& parameter, const Step& step) const override {
    if (!train_affine_ && step.index >= from_step_) {
      for (const std::string& site : sites_) {
        if (parameter.compare(0, site.size(), site) == 0) {
          return false;
        }
      }
    }
    return Wrapper::trainable(parameter, step);
  }

 private:
  static int64_t first_step(const Json& options, const Context& context) {
    const Json &step = options.at("from_step"), &fraction = options.at("from_fraction");
    if (fraction.is_null()) {
      return step.is_null() ? 0 : step.get<int64_t>();
    }
    const auto refuse = [](const std::string& why) { throw Error(Error::Kind::refused, "frozen: " + why); };
    if (!step.is_null()) {
      refuse("from_step and from_fraction exclude each other; give one of them");
    }
    if (context.steps == 0) {
      refuse("from_fraction needs the length of a run, which is not known here; give from_step");
    }
    constexpr double kRounding = 1e-9;  // 0.07 of 100 steps is step 7, not 7.000000000000001
    return static_cast<int64_t>(
        std::ceil(fraction.get<double>() * static_cast<double>(context.steps) - kRounding));
  }

  int64_t from_step_;
  bool train_affine_;
  std::vector<std::string> sites_;  // how the names of their parameters begin
};

const Registered<Strategy> entry{
    {.name = "frozen",
     .summary = "its base up to a step; from then on normalised by the running statistics, which stay",
     .parameters = wrapper_parameters(
         {Parameter::integer("from_step", nullptr,
                             "first training step that is frozen; null: by from_fraction, else 0")
              .at_least(0)
              .or_null(),
          Parameter::number("from_fraction", nullptr, "the same as a fraction of the run's steps")
              .at_least(0)
              .at_most(1)
              .or_null(),
          Parameter::boolean("train_affine", false, "weight and bias go on being trained")}),
     .source =
         "Chen et al. 2017 (DeepLab v3: late in training), FrozenBatchNorm2d of detectron2, fine-tuning",
     .formula = "step < from_step: as the base\n"
                "after: y = gamma (x - running_mean) s + beta, s = 1/sqrt(running_var + eps), both constant\n"
                "dx = gamma s dy, dgamma = s sum dy (x - running_mean), dbeta = sum dy\n"
                "weight and bias stay as they are unless train_affine",
     .exchanges = "as the base up to from_step (in that step 1 for all sites where ranks remember apart), "
                  "then none",
     .use = "for fine-tuning with small batches, or late in training, so that training meets the statistics "
            "that evaluation uses",
     .limits = "needs running statistics that fit the data: frozen at step 0 with fresh weights it is no "
               "normalisation"},
    make<Strategy, Frozen>};

}  // namespace
}  // namespace bnlab
