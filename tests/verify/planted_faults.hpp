// Mistakes that implementations of batch normalisation are known for, wrapped around a sound layer.
#pragma once

#include <functional>
#include <string>

#include "tests/verify/conformance.hpp"

namespace bnlab {

// The layer with another option, as if the one asked for were not honoured.
Applier with_option(const std::string& key, const Json& value);
// The layer's own answer, spoilt step by step.
Applier spoiling(const std::function<void(const LayerStep&, LayerStepAnswer&)>& spoil);
// The layer's own outputs, and the gradients of `other`.
Applier gradients_of(const Applier& other);
// What a training step writes into the pair, spoilt: pair <- 0.9 pair + 0.1 written.
Applier writing(const std::function<void(const LayerStep&, at::Tensor& mean, at::Tensor& var)>& spoil);

// The mean of the towers' moments, however many values they hold.
LayerAnswer equal_weights(const LayerCase& layer_case, int ranks);
// gamma (x - m) / (sqrt(v) + eps) + beta
LayerAnswer eps_outside_the_root(const LayerCase& layer_case, int ranks);
// Every step is normalised with the running statistics that it has updated.
LayerAnswer renorm_after_the_update(const LayerCase& layer_case, int ranks);
// Input gradients stay at the places that the samples were dealt to.
LayerAnswer whole_tower_as_one_response(const LayerCase& layer_case, int ranks);
LayerAnswer filters_deviations_as_constants(const LayerCase& layer_case, int ranks);
LayerAnswer gradients_left_shuffled(const LayerCase& layer_case, int ranks);
// Virtual batches of two samples that are half a tower apart, not neighbours.
LayerAnswer strided_virtual_batches(const LayerCase& layer_case, int ranks);
// Batch normalisation of one value: 0 / sqrt(eps).
LayerAnswer one_value_accepted(const LayerCase& layer_case, int ranks);

int64_t elements(const at::Tensor& x);  // per channel

}  // namespace bnlab
