// frozen: trains as its base up to a step. From then on the saved running statistics normalise and stay as
// they are; weight and bias stay too unless train_affine. Fine-tuning freezes BN so, and DeepLab v3 does late
// in training.
#include <cmath>

#include "strategies/engine/wrapper.hpp"

namespace bnlab::frozen {

class Frozen : public Wrapper {
 public:
  struct Options : WrapperOptions {
    std::optional<int64_t> from_step;
    std::optional<double> from_fraction;
    bool train_affine = false;

    void describe(OptionVisitor& option) {
      option("from_step", from_step, "first training step that is frozen; null: by from_fraction, else 0")
          .at_least(0);
      option("from_fraction", from_fraction, "the same as a fraction of the run's steps")
          .at_least(0)
          .at_most(1);
      option("train_affine", train_affine, "weight and bias go on being trained");
      WrapperOptions::describe(option);
    }

    void check(const RunOutline& run, Problems& problems) const {
      WrapperOptions::check(run, problems);
      if (from_step && from_fraction)
        problems.add("from_fraction", "from_step and from_fraction exclude each other; give one of them");
      else if (from_fraction && !run.has_length)
        problems.add("from_fraction", "needs the length of a run, which is not known here; give from_step");
    }

    int64_t first_step(int64_t of_run) const {
      constexpr double kRounding = 1e-9;  // 0.07 of 100 steps is step 7, not 7.000000000000001
      return from_fraction
                 ? static_cast<int64_t>(std::ceil(*from_fraction * static_cast<double>(of_run) - kRounding))
                 : from_step.value_or(0);
    }
  };

  Frozen(const Options& options, const Context& context)
      : Wrapper(options, context),
        from_step_(options.first_step(context.steps)),
        steps_(context.steps),
        train_affine_(options.train_affine) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override {
    sites_.push_back(site.name + ".");
    return Wrapper::norm(site);
  }

  Outputs forward(Network& network, const at::Tensor& images, const Pass& pass) override {
    if (pass.mode != Mode::train || pass.step.index < from_step_)
      return Wrapper::forward(network, images, pass);
    running_statistics()->freeze();  // merged once; every evaluation puts the same pair back
    Pass frozen = pass;
    frozen.mode = Mode::train_frozen;
    return Wrapper::forward(network, images, frozen);
  }

  bool trainable(const std::string& parameter, const Step& step) const override {
    if (!train_affine_ && step.index >= from_step_) {
      for (const std::string& site : sites_)
        if (parameter.compare(0, site.size(), site) == 0) return false;
    }
    return Wrapper::trainable(parameter, step);
  }

  std::vector<std::string> notes() const override {
    std::vector<std::string> notes = Wrapper::notes();
    if (steps_ > 0 && from_step_ >= steps_) {
      notes.push_back("frozen: no step is frozen, as the first would be step " + std::to_string(from_step_) +
                      " of " + std::to_string(steps_) + ", counted from 0");
    }
    return notes;
  }

  // The first frozen step merges the running statistics.
  StepWork work(const Step& step) const override {
    return step.index < from_step_
               ? Wrapper::work(step)
               : StepWork{
                     .sets_up = step.index == from_step_, .frozen = true, .meets = step.index == from_step_};
  }

 private:
  int64_t from_step_, steps_;  // steps_ 0: not known
  bool train_affine_;
  std::vector<std::string> sites_;  // how the names of their parameters begin
};

const Registered<Strategy> entry{
    {.name = "frozen",
     .summary = "its base up to a step; from then on normalised by the running statistics, which stay",
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

}  // namespace bnlab::frozen
