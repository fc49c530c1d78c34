// batch_renorm: the batch's moments normalise, corrected towards the running statistics within limits, so
// that training and evaluation see the same activations (Ioffe 2017). The running statistics that correct are
// those before this step's update. The limits rise linearly from 1 and 0 along `schedule`.
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab::batch_renorm {

BNLAB_CHOICE(Scope, tower, pooled)

// The training steps between which the limits rise, given as steps or as fractions of the run.
struct Schedule {
  std::optional<int64_t> start_step, end_step;
  std::optional<double> start_fraction, end_fraction;

  void describe(OptionVisitor& option) {
    option("start_step", start_step, "training step from which the limits rise").at_least(0);
    option("end_step", end_step, "training step from which they are r_max and d_max").at_least(0);
    option("start_fraction", start_fraction, "the same as a fraction of the run").at_least(0).at_most(1);
    option("end_fraction", end_fraction, "the same as a fraction of the run").at_least(0).at_most(1);
  }

  bool in_steps() const { return start_step || end_step; }
  bool in_fractions() const { return start_fraction || end_fraction; }

  // The first and the last step of the rise; where nothing is given, from 10 % to 50 % of the run.
  std::pair<double, double> steps(double of_run) const {
    if (in_steps()) {
      const auto start = static_cast<double>(start_step.value_or(0));
      return {start, end_step ? static_cast<double>(*end_step) : start};
    }
    const bool given = in_fractions();
    return {start_fraction.value_or(given ? 0 : 0.1) * of_run,
            end_fraction.value_or(given ? 1 : 0.5) * of_run};
  }
};

struct Options : BnOptions {
  double r_max = 3;
  double d_max = 5;
  std::optional<Schedule> schedule = Schedule{};
  Scope scope = Scope::tower;

  void describe(OptionVisitor& option) {
    option("r_max", r_max, "largest correction of the scale").at_least(1);
    option("d_max", d_max, "largest correction of the mean").at_least(0);
    option("schedule", schedule,
           "when the limits rise from 1 and 0; {}: from 10 % to 50 % of a run; null: at once");
    option("scope", scope, "batch moments of the tower, or pooled over all towers");
    BnOptions::describe(option);
  }

  void check(const RunOutline& run, Problems& problems) const {
    BnOptions::check(run, problems);
    if (!schedule) return;
    const auto [start, end] = schedule->steps(1);
    if (schedule->in_steps() && schedule->in_fractions()) {
      problems.add("schedule", "give start_step and end_step, or start_fraction and end_fraction, not both");
    } else if (schedule->in_fractions() && !run.has_length) {
      problems.add("schedule",
                   "start_fraction and end_fraction need the length of a run, which is not known here; give "
                   "start_step and end_step");
    } else if (end < start) {
      problems.add("schedule", "it ends before it starts");
    }
  }

  Rules rules(const Strategy::Context& context) const {
    Rules rules = shared_rules("batch_renorm");
    const bool pooled = scope == Scope::pooled;
    rules.normalise_by = pooled ? NormaliseBy::pooled : NormaliseBy::local;
    rules.remember = pooled ? Remember::pooled : Remember::mean;
    rules.renorm = LimitSchedule{r_max, d_max};
    if (schedule) {
      std::tie(rules.renorm->start_step, rules.renorm->end_step) =
          schedule->steps(static_cast<double>(context.steps));
      // Fractions that are given were refused already (check); the default waits for a training step.
      rules.renorm->lacks_length = !schedule->in_steps() && context.in_a_run && context.steps == 0;
    }
    return rules;
  }
};

const Registered<Strategy> entry{
    {.name = "batch_renorm",
     .summary = "batch moments normalise, corrected towards the running statistics within limits",
     .source = "Ioffe 2017",
     .formula = "r = clip(sqrt(v_b + eps) / sqrt(running_var + eps), 1/r_max, r_max)\n"
                "d = clip((m_b - running_mean) / sqrt(running_var + eps), -d_max, d_max)\n"
                "y = gamma ((x - m_b) / sqrt(v_b + eps) r + d) + beta, r and d constants for the gradient\n"
                "running: as averaged (mean) for scope tower, as sync for scope pooled, after use",
     .exchanges = "1 forward; scope pooled: 1 forward, 1 backward",
     .use = "small batches without a shared backward; r_max 1.5 and d_max 0.5 suit short runs",
     .limits = "limits of 3 and 5 from the first step spoil the start: keep the schedule"},
    make_bn_strategy<Options>};

}  // namespace bnlab::batch_renorm
