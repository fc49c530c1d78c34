#include "harness/launch/dead_claims.hpp"

#include <filesystem>
#include <optional>

#include "harness/launch/survey.hpp"
#include "harness/queue/active_processes.hpp"
#include "harness/queue/claims.hpp"
#include "harness/store/ledger.hpp"
#include "harness/support/error.hpp"

namespace bnlab {

void remove_dead_claims(const std::string& experiment, const std::vector<PlacedRun>& finished,
                        const std::map<std::string, std::string>& ok, const LaunchRequest& request) {
  std::map<std::filesystem::path, std::vector<std::filesystem::path>> claimed;  // by the folder of the run
  for (const auto& folder : claimed_folders(request.results_dir, experiment))
    claimed[folder.parent_path()].push_back(folder);
  std::optional<ActiveProcesses> active;
  for (const PlacedRun& run : finished) {
    const std::filesystem::path own = run.folder;
    const auto done = ok.find(run.spec.id);
    const std::string place = done == ok.end() ? own.filename().string() : done->second;
    const bool anywhere = done != ok.end() && !run.named.ranks && !run.named.device && !run.named.exchange &&
                          !run.spec.ranks && !run.spec.device && !run.spec.exchange;
    // run.seen_started_at is empty here, so that any finished record counts.
    const auto is_finished = [&](const std::filesystem::path& there) { return finished_since(run, there); };
    for (const std::filesystem::path& folder : claimed[own.parent_path()]) {
      const bool is_elsewhere = folder.filename() != place;
      if (is_elsewhere && !anywhere) continue;
      std::string holder;
      try {
        if (!active) active.emplace(request.results_dir);
        auto claim = Claim::take(folder, *active, request.steal_after, is_finished, holder);
        if (claim && is_elsewhere) claim->drop();
        if (claim && !is_elsewhere) claim->withdraw();  // the record has gone: somebody began the run anew
      } catch (const Error&) {                          // this user may not write into the folder
      }
    }
  }
}

}  // namespace bnlab
