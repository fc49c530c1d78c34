// The keys of a spec, declared once: the declarations check specs, fill in defaults and print help.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"

namespace bnlab {

// What a run is: the keys of a resolved run spec (in its order), and "placement". These may be axes.
const std::vector<Parameter>& run_parameters();

// What surrounds the runs: texts, the base spec, the matrix and what is asked of it.
const std::vector<Parameter>& experiment_parameters();

// The KEY of the shards "sorted:KEY"; empty for "iid" and for what is neither.
std::string sorted_by(const std::string& shards);

// Keys that are left out of the run id: they say where a run happens, how long it may take and how
// often it talks, and change no result.
bool changes_result(const std::string& key);

}  // namespace bnlab
