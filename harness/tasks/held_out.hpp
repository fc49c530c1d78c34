// A set of samples divided in two by a fixed rule. Needs no LibTorch.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace bnlab {

// The places of the samples that are held out: at least `share` of them, by the hash of their names. Samples
// of equal names are never on both sides, and neither a seed nor the order of the samples enters. Empty where
// all have one name, so that nothing can be held out.
std::set<size_t> held_out(const std::vector<std::string>& names, double share);

}  // namespace bnlab
