// bnlab confirm: results of older code that today's code has repeated.
#include <filesystem>
#include <iostream>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/program.hpp"
#include "harness/store/records.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

struct ConfirmRequest {
  std::string results, again;

  void describe(Arguments& option) {
    option("RESULTS", results,
           "Folder RESULTS/EXPERIMENT with stale runs. Those whose spec differs from that of a repeated run "
           "in the seed only, on the same placement, are confirmed with it");
    option("AGAIN", again, "Some of its runs, made anew by this program");
  }
};

int confirm(const ConfirmRequest& request) {
  for (const std::string& folder : {request.results, request.again})
    if (!std::filesystem::is_directory(folder))
      throw Error(Error::Kind::usage, folder + ": no such folder; expected a folder RESULTS/EXPERIMENT");
  const Confirmed confirmed =
      confirm_results(experiment_folder(request.results), experiment_folder(request.again));
  for (const std::string& sentence : confirmed.left_out) std::cerr << "left out: " << sentence << "\n";
  for (const std::string& sentence : confirmed.differing) std::cout << "differs: " << sentence << "\n";
  std::cout << confirmed.repeated - confirmed.differing.size() << " of " << confirmed.repeated
            << " repeated runs answer the same to the last digit\n"
            << request.results << ": " << confirmed.covered << " runs of older code count as up to date, "
            << confirmed.uncovered << " are stale\n";
  if (confirmed.timed > 0) {
    std::cout << "the throughput of " << confirmed.timed
              << " of them is that of the older code; bnlab compare shows whether it has changed\n";
  }
  return confirmed.differing.empty() && confirmed.left_out.empty() ? exit_code::kOk : exit_code::kFailed;
}

const Command confirm_command(
    "confirm", {Heading::results, 6},
    "Accept results of older code, where runs repeated by this program give the same",
    "  bnlab run tradeoff --results /tmp/again --only seed=any\n"
    "  bnlab confirm results/tradeoff /tmp/again/tradeoff",
    confirm);

}  // namespace
}  // namespace bnlab
