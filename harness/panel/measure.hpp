// Makes an entry of the panel (harness/numerics) and says what it computed.
#pragma once

#include <optional>
#include <string>

#include "harness/numerics/panel.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// The numbers of an entry's run, made in this process with one thread: the loss of each step, the norm of the
// last gradients, the metrics of each population, and of weights, running statistics and each population's
// statistics one number that any change of any of them moves: the sum over all elements, each times a fixed
// number of its own.
//
// {"loss 1": 1.61, ..., "saved mean_iou": 0.2, "weights": -3.1, "running_mean": ..., "outcome": ...};
// `outcome` is there where the run did not end ok, which may be what is committed. Nothing where this build
// cannot make it (`why` says so).
std::optional<Json> measure(const PanelEntry& entry, std::string& why);

}  // namespace bnlab
