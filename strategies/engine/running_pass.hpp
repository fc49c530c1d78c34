// Passes by running statistics, which are constants: those of an evaluation, and of training that is frozen.
#pragma once

#include <memory>

#include "strategies/engine/norm_function.hpp"
#include "strategies/engine/running_statistics.hpp"

namespace bnlab {

// By the pair in the site's buffers, y = gamma (x - m') s + beta; or, where the pass gives the samples
// themselves a share A, each sample by this pair (m', v') and its own moments (m, v), mixed as the moments of
// one set are in which the sample weighs A (inference example weighing, Summers and Dinneen 2020, who mix
// E[x] and E[x^2]):
//   mean = A m + (1 - A) m',   variance = A v + (1 - A) v' + A (1 - A) (m - m')^2
c10::intrusive_ptr<NormPass> running_pass(const at::Tensor& x, const Pass& pass,
                                          std::shared_ptr<const Rules> rules,
                                          std::shared_ptr<SiteStatistics> statistics);

}  // namespace bnlab
