// The comparisons that a spec declares beforehand, checked against its matrix.
#pragma once

#include <vector>

#include "harness/experiment/matrix.hpp"
#include "harness/experiment/mistakes.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/json.hpp"

namespace bnlab {

// `contrasts` is complete with defaults, `written` as the file has it. A contrast that no run can
// answer is a mistake.
std::vector<Contrast> read_contrasts(const Json& contrasts, const Json& written, const Expansion& expansion,
                                     Mistakes& mistakes);

}  // namespace bnlab
