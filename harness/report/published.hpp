// The cells of an experiment beside numbers that others have published.
#pragma once

#include <string>
#include <vector>

#include "harness/report/report.hpp"

namespace bnlab {

// One result per number and cell that matches its `at`; of kRelativeImagesPerS one per placement, as `reported` gives it.
// `reported` are the same cells as `cells`.
std::vector<PublishedResult> beside_published(const std::vector<Published>& published,
                                              const std::vector<CellRecords>& cells,
                                              const std::vector<ReportCell>& reported);

// Where the runs lie: a sentence per result, and where a number has many results one for all of them.
std::vector<std::string> published_sentences(const std::vector<PublishedResult>& results);

}  // namespace bnlab
