// A set of samples divided in two by a fixed rule. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "harness/components/options.hpp"

namespace bnlab {

// What a task evaluates: its test samples or, to tune on, a part of the training samples, which are then not
// trained on.
BNLAB_CHOICE(Evaluated, test, held_out)

// The places of the samples that are held out: at least `share` of them, by the hash of their names. Samples
// of equal names are never on both sides, and neither a seed nor the order of the samples enters. Empty where
// all have one name, so that nothing can be held out.
std::set<size_t> held_out(const std::vector<std::string>& names, double share);

}  // namespace bnlab
