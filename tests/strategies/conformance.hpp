// What every strategy must hold to, as checks over an applier: the layer itself, or a planted fault wrapped
// around it. A check answers what is wrong; nothing means that it holds.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/layer/layer_case.hpp"

namespace bnlab {

using Applier = std::function<LayerAnswer(const LayerCase& layer_case, int ranks)>;
using Complaints = std::vector<std::string>;

struct Check {
  std::string name;
  std::function<Complaints(const Json& strategy, const Applier& apply)> find;  // strategy: resolved
};

// Of everything that a layer answers.
const std::vector<Check>& layer_checks();
// Of what needs the strategy itself rather than its answers: declarations, checkpoints, the ranks'
// collectives.
const std::vector<Check>& strategy_checks();

// The check's complaints; an exception is one.
Complaints complaints(const Check& check, const Json& strategy, const Applier& apply);

}  // namespace bnlab
