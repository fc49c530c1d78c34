// The matrix of a spec: its axes, the cells that they span, the runs that are left of them, and the
// comparisons of these that the spec declares beforehand.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "harness/experiment/mistakes.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

struct Expansion {
  std::vector<RunSpec> runs;
  std::vector<Experiment::Excluded> excluded;
  std::vector<Json> cells;         // resolved, with "placement": one per run; more where there are mistakes
  std::set<std::string> mistaken;  // top-level keys with mistakes; nothing is concluded from their values
};

// Expands `base` (the run keys of a spec) by `matrix` and leaves out what `exclude` matches. Every
// mistake is reported at the place that it was written at: in `base`, or in the axis that set the value.
Expansion expand(const Json& base, const Json& matrix, const Json& exclude, Mistakes& mistakes);

// `contrasts` is complete with defaults, `written` as the file has it. A contrast that no run can
// answer is a mistake.
std::vector<Contrast> read_contrasts(const Json& contrasts, const Json& written, const Expansion& expansion,
                                     Mistakes& mistakes);

// Reports published numbers that no run can be compared with. `published` is complete with defaults.
void check_published(const Json& published, const Expansion& expansion, Mistakes& mistakes);

// Reports a metric or a population, written below `path`, that a run (resolved) does not end with.
void check_measured(const std::string& metric, const std::string& population, const Json& run,
                    const std::string& path, Mistakes& mistakes,
                    const std::string& population_key = "population");

// The experiment that a spec in one piece asks for. Throws Error (spec) with `mistakes` and those that are
// found.
Experiment make_experiment(const Json& spec, const std::string& name, const std::string& file,
                           Mistakes& mistakes);

}  // namespace bnlab
