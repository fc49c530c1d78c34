#include "harness/training/endings/early_stop.hpp"

#include <torch/types.h>

#include <cmath>

#include "harness/support/text_table.hpp"

namespace bnlab {

EarlyStop::EarlyStop(const StopEarly& rule, World& world, at::ScalarType loss_type)
    : rule_(rule),
      world_(world),
      loss_sum_(at::zeros({}, at::TensorOptions().device(world.device()).dtype(loss_type))) {}

void EarlyStop::add(const at::Tensor& loss) {
  loss_sum_ += loss.detach();
}

bool EarlyStop::ends_run(int64_t steps_done) {
  at::Tensor sum = loss_sum_.to(at::kDouble) / static_cast<double>(world_.size());
  world_.gradients().all_reduce(sum, Purpose::loss);
  world_.gradients().broadcast(sum, 0, Purpose::control);  // the last bit may depend on the rank
  const double loss = sum.item<double>() / static_cast<double>(rule_.every);
  loss_sum_.zero_();
  if (steps_done == rule_.every) {
    first_loss_ = std::isfinite(loss) ? loss : 0;
    return false;
  }
  const double ratio = loss / first_loss_;
  const bool is_late = rule_.chance_after && steps_done >= *rule_.chance_after;
  const char* reason = ratio > rule_.diverging_above            ? "diverging"
                       : is_late && ratio > *rule_.chance_above ? "at chance"
                                                                : nullptr;
  if (reason == nullptr || !std::isfinite(ratio)) return false;
  stopped_ = {{"step", steps_done}, {"reason", reason}, {"loss", loss}, {"first_loss", first_loss_}};
  return true;
}

std::string EarlyStop::sentence(int64_t steps) const {
  const std::string reason = stopped_.at("reason");
  const double bound = reason == "diverging" ? rule_.diverging_above : *rule_.chance_above;
  return "stopped early after " + stopped_.at("step").dump() + " of " + std::to_string(steps) + " steps, " +
         reason + ": the mean training loss of " + std::to_string(rule_.every) + " steps, " +
         significant(stopped_.at("loss"), 4) + ", is more than " + significant(bound, 3) +
         " times that of the first " + std::to_string(rule_.every) + ", " + significant(first_loss_, 4);
}

void EarlyStop::describe(State& state) {
  state.tensor("early_stop.loss_sum", loss_sum_, Across::mean);
  state.value("early_stop.first_loss", first_loss_);
}

}  // namespace bnlab
