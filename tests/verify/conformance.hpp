// What every strategy is held to, over an applier: the layer itself, or a planted fault wrapped around it.
// The checks are the groups of the table of harness/verify and, on top of it, what only tests need.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "harness/layer/layer_case.hpp"

namespace bnlab {

using Applier = std::function<LayerAnswer(const LayerCase& layer_case, int ranks)>;

// The first case of the table that is not answered as the reference does, or "". `check` names a group of
// cases on one rank, or "placement": cases on two and four ranks.
std::string complaint_of_table(const std::string& check, const Json& strategy, const Applier& apply);
// The same for the whole table and placements too.
std::string complaint_of_table(const Json& strategy, const Applier& apply);

struct Check {
  std::string name;
  std::function<std::string(const Json& strategy, const Applier& apply)> complaint;  // strategy: resolved
};

// Finite differences, LibTorch's own batch_norm, checkpoints, what the ranks send. For strategies that are
// not refused.
const std::vector<Check>& further_checks();

// One check of either kind, by its name.
std::string complaint(const std::string& check, const Json& strategy, const Applier& apply);

// The strategies of these names under all variants of their references, resolved, and what a test calls each.
std::vector<Json> variants_of(const std::vector<std::string>& names);
std::string name_of_variant(const ::testing::TestParamInfo<Json>& info);

// Uneven towers of sizes that the strategy's options allow.
LayerCase small_case(const Json& strategy, const std::vector<Mode>& modes);
// Whether the strategy refuses even that.
bool must_refuse(const Json& strategy);

std::string gradients_are_finite_differences(const Json& strategy, const Applier& apply);

}  // namespace bnlab
