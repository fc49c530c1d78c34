// bnlab merge: results that were computed apart, put together.
#include <filesystem>
#include <iostream>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/mapped.hpp"
#include "harness/transfer/merging.hpp"

namespace bnlab {
namespace {

struct MergeRequest {
  std::string into;
  std::vector<std::string> from;
  Keep keep = Keep::neither;
};

int merge(const MergeRequest& request) {
  const auto from = mapped(request.from, [](const std::string& folder) { return experiment_folder(folder); });
  const Merged merged = merge_results(experiment_folder(request.into), from, request.keep);
  for (const std::string& sentence : merged.left_out) std::cerr << "left out: " << sentence << "\n";
  std::cout << request.into << ": " << merged.added << " runs added, " << merged.replaced << " replaced, "
            << merged.there << " as they were\n";
  return merged.left_out.empty() ? exit_code::kOk : exit_code::kFailed;
}

}  // namespace

void add_merge(Program& program) {
  auto [command, request] =
      add_command(program, "merge", "Put together results of one experiment that were computed apart",
                  "  bnlab merge results/tradeoff /mnt/node2/tradeoff /mnt/node3/tradeoff", merge);
  command.add_option("INTO", request.into, "Folder RESULTS/EXPERIMENT; it need not exist")->required();
  command.add_option("FROM", request.from, "Folders whose finished runs INTO gets")->required();
  command
      .add_option_function<std::string>(
          "--keep", [&keep = request.keep](const std::string& name) { keep = choice_of<Keep>(name); },
          "Which to keep of a run whose results differ: into, or from (the last that has it)")
      ->type_name("WHICH")
      ->check(one_of({"into", "from"}));
}

}  // namespace bnlab
