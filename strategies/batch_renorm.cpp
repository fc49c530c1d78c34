// batch_renorm: the batch's moments normalise, corrected towards the running statistics within limits, so
// that training and evaluation see the same activations (Ioffe 2017).
//   r = clip(sqrt(v_b + eps) / sqrt(running_var + eps), 1/r_max, r_max)
//   d = clip((m_b - running_mean) / sqrt(running_var + eps), -d_max, d_max), constants for the gradient
//   y = gamma ((x - m_b) / sqrt(v_b + eps) r + d) + beta
// with the running statistics before this step's update. Limits rise linearly from 1 and 0 along `schedule`.
#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab {
namespace {

// The steps between which the limits rise: given, as fractions of the run, or by default from 10 % to 50 %.
void read_schedule(const Json& schedule, int64_t run_steps, Renorm& renorm) {
  if (schedule.is_null()) {
    return;
  }
  const auto given = [&](const char* key) { return !schedule.at(key).is_null(); };
  const auto refuse = [](const std::string& why) {
    throw Error(Error::Kind::refused, "batch_renorm: schedule: " + why);
  };
  const bool steps = given("start_step") || given("end_step");
  const bool fractions = given("start_fraction") || given("end_fraction");
  if (steps && fractions) {
    refuse("give start_step and end_step, or start_fraction and end_fraction, not both");
  }
  if (fractions && run_steps == 0) {
    refuse(
        "start_fraction and end_fraction need the length of a run, which is not known here; give start_step "
        "and end_step");
  }
  const auto value = [&](const char* key, double otherwise) {
    return given(key) ? schedule.at(key).get<double>() : otherwise;
  };
  if (steps) {
    renorm.start_step = value("start_step", 0);
    renorm.end_step = value("end_step", renorm.start_step);
  } else {
    renorm.start_step = value("start_fraction", fractions ? 0 : 0.1) * static_cast<double>(run_steps);
    renorm.end_step = value("end_fraction", fractions ? 1 : 0.5) * static_cast<double>(run_steps);
  }
  if (renorm.end_step < renorm.start_step) {
    refuse("it ends before it starts");
  }
}

Rules rules(const Json& options, const Strategy::Context& context) {
  Rules rules = shared_rules(options);
  const bool pooled = options.at("scope") == "pooled";
  rules.normalise_by = pooled ? NormaliseBy::pooled : NormaliseBy::own;
  rules.remember = pooled ? Remember::pooled : Remember::mean;
  rules.renorm = Renorm{options.at("r_max").get<double>(), options.at("d_max").get<double>()};
  read_schedule(options.at("schedule"), context.steps, *rules.renorm);
  return rules;
}

Parameter schedule() {
  return Parameter::group(
             "schedule",
             {Parameter::integer("start_step", nullptr, "training step from which the limits rise")
                  .at_least(0)
                  .or_null(),
              Parameter::integer("end_step", nullptr, "training step from which they are r_max and d_max")
                  .at_least(0)
                  .or_null(),
              Parameter::number("start_fraction", nullptr, "the same as a fraction of the run")
                  .at_least(0)
                  .at_most(1)
                  .or_null(),
              Parameter::number("end_fraction", nullptr, "the same as a fraction of the run")
                  .at_least(0)
                  .at_most(1)
                  .or_null()},
             "when the limits rise from 1 and 0; {}: from 10 % to 50 % of a run; null: at once")
      .or_null();
}

const Registered<Strategy> entry{
    {"batch_renorm", "batch moments normalise, corrected towards the running statistics within limits",
     tower_parameters({Parameter::number("r_max", 3, "largest correction of the scale").at_least(1),
                       Parameter::number("d_max", 5, "largest correction of the mean").at_least(0),
                       schedule(),
                       Parameter::choice("scope", "tower", {"tower", "pooled"},
                                         "batch moments of the tower, or pooled over all towers")}),
     "Ioffe 2017",
     "r = clip(sqrt(v_b + eps) / sqrt(running_var + eps), 1/r_max, r_max)\n"
     "d = clip((m_b - running_mean) / sqrt(running_var + eps), -d_max, d_max)\n"
     "y = gamma ((x - m_b) / sqrt(v_b + eps) r + d) + beta, r and d constants for the gradient\n"
     "running: as averaged (mean) for scope tower, as sync for scope pooled, after use",
     "1 forward; scope pooled: 1 forward, 1 backward",
     "small batches without a shared backward; r_max 1.5 and d_max 0.5 suit short runs",
     "limits of 3 and 5 from the first step spoil the start: keep the schedule"},
    make_bn_strategy<rules>};

}  // namespace
}  // namespace bnlab
