#include "harness/queue/held_runs.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>

#include "harness/store/attempts.hpp"
#include "harness/store/claim_holder.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr double kSilent = 120;  // seconds; a claim is renewed every 30

}  // namespace

std::string HeldRun::sentence() const {
  return run_id + " " + placement + ": " + (attempt > 1 ? "attempt " + std::to_string(attempt) + ", " : "") +
         holder +
         (died ? ", which has died: bnlab run takes it over"
          : quiet_s > kSilent
              ? ", without a sign of life for " + std::to_string(static_cast<int64_t>(quiet_s)) + " s"
              : "");
}

Json HeldRun::json() const {
  Json all = {{"run_id", run_id}, {"placement", placement}, {"attempt", attempt}};
  all.update(process);
  all["died"] = died;
  all["quiet_s"] = quiet_s;
  return all;
}

std::vector<HeldRun> held_runs(const fs::path& results, const std::string& experiment) {
  std::vector<HeldRun> held;
  for (const fs::path& folder : claimed_folders(results, experiment)) {
    const std::vector<NumberedFile> claims = claims_of(folder);
    struct stat file {};
    if (claims.empty() || ::stat(claims.back().path.c_str(), &file) != 0 || file.st_mtim.tv_sec == 0) {
      continue;  // it has come to an end in the meantime, or nobody has it
    }
    const ClaimHolder holder(claims.back().path);
    if (holder.has_died() && fs::exists(folder / kRecordFile)) {
      continue;  // it had published the run before it was killed
    }
    const auto quiet_s = static_cast<double>(std::time(nullptr) - file.st_mtim.tv_sec);
    held.push_back({folder.parent_path().filename().string(), folder.filename().string(),
                    claims.back().number, holder.name(), holder.json(), holder.has_died(),
                    std::max(0.0, quiet_s)});
  }
  return held;
}

}  // namespace bnlab
