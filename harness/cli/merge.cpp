// bnlab merge: results that were computed apart, put together.
#include <filesystem>
#include <iostream>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/program.hpp"
#include "harness/support/mapped.hpp"
#include "harness/transfer/merging.hpp"

namespace bnlab {
namespace {

struct MergeRequest {
  std::string into;
  std::vector<std::string> from;
  std::optional<Keep> keep;

  void describe(Arguments& option) {
    option("INTO", into, "Folder RESULTS/EXPERIMENT; it need not exist");
    option("FROM", from, "Folders whose finished runs INTO gets");
    option("--keep WHICH", keep,
           "Which to keep of a run whose results differ: into, or from (the last that has it)")
        .one_of({"into", "from"});
  }
};

int merge(const MergeRequest& request) {
  const auto from = mapped(request.from, [](const std::string& folder) { return experiment_folder(folder); });
  const Merged merged =
      merge_results(experiment_folder(request.into), from, request.keep.value_or(Keep::neither));
  for (const std::string& sentence : merged.left_out) std::cerr << "left out: " << sentence << "\n";
  std::cout << request.into << ": " << merged.added << " runs added, " << merged.replaced << " replaced, "
            << merged.there << " as they were\n";
  return merged.left_out.empty() ? exit_code::kOk : exit_code::kFailed;
}

const Command merge_command("merge", {Heading::results, 5},
                            "Put together results of one experiment that were computed apart",
                            "  bnlab merge results/tradeoff /mnt/node2/tradeoff /mnt/node3/tradeoff", merge);

}  // namespace
}  // namespace bnlab
