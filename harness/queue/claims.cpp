#include "harness/queue/claims.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <ranges>
#include <utility>

#include "harness/store/attempts.hpp"
#include "harness/store/record.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr seconds kRenewEvery{30};
constexpr double kRenewalsMissed = 2;  // by which a claim that is alive may be late
constexpr double kSilent = 120;        // seconds without a sign of life, which are worth a word

[[noreturn]] void throw_errno(const std::string& what, const fs::path& file) {
  throw Error(Error::Kind::environment, what + " " + file.string() + ": " + std::strerror(errno));
}

bool touch(const fs::path& file) {  // by the clock of the file's server
  return ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0) == 0;
}

// The age of a file by the clock of its server, which a file that was touched just now tells.
double age_s(const fs::path& file, const fs::path& touched) {
  struct stat then{};
  struct stat now{};
  if (::stat(file.c_str(), &then) != 0 || ::stat(touched.c_str(), &now) != 0) return 0;
  return static_cast<double>(now.st_mtim.tv_sec - then.st_mtim.tv_sec) +
         1e-9 * static_cast<double>(now.st_mtim.tv_nsec - then.st_mtim.tv_nsec);
}

bool says(const fs::path& claim, const std::string& text) {
  try {
    return read_text(claim) == text + "\n";
  } catch (const Error&) {  // it is gone, or no claim
    return false;
  }
}

// Makes the claim this process's; false where somebody else was faster. On disks that do not link, a file
// that must not be there yet is written.
bool make(const fs::path& claim, const ActiveProcesses& active) {
  if (::link(active.file().c_str(), claim.c_str()) == 0) return true;
  const int reason = errno;
  if (says(claim, active.text())) return true;  // over NFS, an answer may be lost
  if (reason == EEXIST) return false;
  const int descriptor = ::open(claim.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0 && errno == EEXIST) return false;
  if (descriptor < 0) throw_errno("cannot write", claim);
  const std::string line = active.text() + "\n";
  const bool written = ::write(descriptor, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (::close(descriptor) == 0 && written) return true;
  const int problem = errno;
  ::unlink(claim.c_str());
  errno = problem;
  throw_errno("cannot write", claim);
}

// Whether the folder was renamed. False where it is not there, because somebody else was faster, or never
// was.
bool moved(const fs::path& folder, const fs::path& to) {
  if (::rename(folder.c_str(), to.c_str()) == 0) return true;
  if (errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST) return false;
  throw_errno("cannot rename to", to);
}

// Whether the folder has taken the place of what is at `to`, which then has the folder's name, or lies at
// `aside` on disks that do not exchange names. False where the folder is not there.
bool put_in_place_of(const fs::path& folder, const fs::path& to, const fs::path& aside) {
  if (::renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (!fs::exists(folder)) return false;
  fs::remove_all(aside);
  moved(to, aside);
  return moved(folder, to);
}

// What is deleted and written for a run must lie in its folder, and not where a link leads.
void refuse_links(const fs::path& run_folder) {
  for (const fs::path& part : {run_folder.parent_path(), run_folder}) {
    if (fs::is_symlink(part)) {
      throw Error(Error::Kind::environment, part.string() +
                                                " is a symbolic link, through which a run deletes "
                                                "and writes nothing; remove it");
    }
  }
}

}  // namespace

std::chrono::duration<double> renewal(seconds steal_after) {
  return std::min<std::chrono::duration<double>>(kRenewEvery, std::chrono::duration<double>(steal_after) / 4);
}

std::optional<Claim> Claim::take(const fs::path& run_folder, const ActiveProcesses& active,
                                 seconds steal_after, const Finished& finished, std::string& holder) {
  refuse_links(run_folder);
  try {
    fs::create_directories(run_folder.parent_path());
  } catch (const fs::filesystem_error& error) {
    throw Error(Error::Kind::environment,
                "cannot make " + run_folder.parent_path().string() + ": " + error.code().message());
  }
  for (;;) {
    const std::vector<NumberedFile> claims = claims_of(run_folder);
    std::string damage;
    if (!claims.empty()) {
      const fs::path& file = claims.back().path;
      const ClaimHolder last(file);
      touch(active.file());
      // Nobody needs longer than kRenewEvery, whatever the claim says.
      const double renews_every_s = std::min(last.renews_every_s(), static_cast<double>(kRenewEvery.count()));
      const double silence =
          std::max(static_cast<double>(steal_after.count()), kRenewalsMissed * renews_every_s);
      if (!last.has_died() && age_s(file, active.file()) < silence) {
        holder = last.name();
        return std::nullopt;
      }
      damage = last.damage();
      if (claims.back().number == kLastAttempt)
        throw Error(Error::Kind::data, file.string() + ": no later attempt has a number; remove the file");
    }
    const int number = claims.empty() ? 1 : claims.back().number + 1;
    if (!make(claim_file(run_folder, number), active)) continue;  // somebody was faster: look again
    Claim claim(run_folder, number, active.text(), steal_after);
    claim.damage_ = damage;
    try {
      if (finished(run_folder) || !claim.inherit(finished)) {
        claim.clear_up();
        return std::nullopt;
      }
    } catch (const std::exception&) {  // the disk refuses, which is no attempt at the run
      ::unlink(claim_file(run_folder, number).c_str());
      throw;
    }
    if (claim.owns()) return claim;
    ::rmdir(claim.folder_.c_str());  // it was taken over before it began: look again
  }
}

Claim::Claim(fs::path run_folder, int number, std::string text, seconds steal_after)
    : run_folder_(std::move(run_folder)),
      folder_(attempt_folder(run_folder_, number)),
      number_(number),
      text_(std::move(text)),
      renew_every_(std::chrono::duration_cast<std::chrono::steady_clock::duration>(renewal(steal_after))),
      renewed_(std::chrono::steady_clock::now()) {}

int Claim::attempts() const {
  return attempts_without_end(folder_) + 1;
}

// Takes the files of the last attempt, or of the run's own folder, which counts as attempt 0. False where one
// of them is finished: it has become so since the claim was made, or its process died just before the last
// step.
bool Claim::inherit(const Finished& finished) {
  made_again_ = holds_result(run_folder_);
  const fs::path own = attempt_folder(run_folder_, 0);
  if (!made_again_ && moved(run_folder_, own) && finished(own)) {
    becomes_the_runs(own);
    return false;
  }
  const std::vector<NumberedFile> folders = attempt_folders_of(run_folder_);
  const std::vector<NumberedFile> claims = claims_of(run_folder_);  // later: a claim stands before its folder
  for (const NumberedFile& earlier : std::views::reverse(folders)) {
    // An attempt that was withdrawn beside a result has left its checkpoints and no claim.
    const bool has_claim = earlier.number != number_ &&
                           std::ranges::find(claims, earlier.number, &NumberedFile::number) != claims.end();
    const bool left = made_again_ && !has_claim && earlier.path != folder_;
    if ((earlier.number < number_ || left) && moved(earlier.path, folder_)) break;
  }
  if (finished(folder_)) {
    becomes_the_runs(folder_);
    return false;
  }
  fs::create_directories(folder_);
  return true;
}

bool Claim::owns() const {
  if (lost_) return false;
  const std::vector<NumberedFile> claims = claims_of(run_folder_);
  return !claims.empty() && claims.back().number == number_ && says(claims.back().path, text_);
}

bool Claim::beat() {
  const auto now = std::chrono::steady_clock::now();
  if (lost_ || now - renewed_ < renew_every_) return !lost_;
  renewed_ = now;
  try {
    lost_ = !owns();
  } catch (const fs::filesystem_error&) {  // the disk does not answer, which says nothing
  }
  if (!lost_) touch(claim_file(run_folder_, number_));
  return !lost_;
}

// One rename; false where somebody else was faster. Its process may have died before it removed checkpoints,
// which a result does not need.
bool Claim::becomes_the_runs(const fs::path& folder) const {
  std::error_code ignored;
  if (holds_result(folder)) fs::remove_all(folder / kCheckpointsFolder, ignored);
  const fs::path aside = attempt_folder(run_folder_, 0);
  if (!moved(folder, run_folder_) && !put_in_place_of(folder, run_folder_, aside)) return false;
  const int parent = ::open(run_folder_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ::fsync(parent);  // the new name must survive a power cut
  ::close(parent);
  return true;
}

// Removes what attempts at a run that has come to an end have left, this one's claim last. Where the run was
// taken over, a later attempt does that, and may need this one's folder; where that has come to its end, only
// the folder is left to be removed. What cannot be removed stays.
void Claim::clear_up() const {
  std::error_code ignored;
  const std::vector<NumberedFile> claims = claims_of(run_folder_);
  if (!claims.empty() && claims.back().number > number_) return;
  if (!owns()) {
    fs::remove_all(folder_, ignored);
    return;
  }
  for (const NumberedFile& attempt : attempt_folders_of(run_folder_))
    if (attempt.number <= number_) fs::remove_all(attempt.path, ignored);
  for (const NumberedFile& claim : claims) fs::remove(claim.path, ignored);
}

bool Claim::publish(bool keep_counting) {
  const bool published = owns() && becomes_the_runs(folder_);
  if (published && keep_counting)
    count_attempt(claim_file(run_folder_, number_));
  else
    clear_up();
  return published;
}

void Claim::withdraw() {
  if (!owns()) return clear_up();
  if (!made_again_)
    moved(folder_, run_folder_);
  else if (std::error_code ignored; !fs::exists(folder_ / kCheckpointsFolder))
    fs::remove_all(folder_, ignored);  // the run's own folder stays, and nothing here could be gone on with
  std::error_code not_empty;
  fs::remove(folder_, not_empty);
  ::unlink(claim_file(run_folder_, number_).c_str());
}

void Claim::drop() {
  clear_up();
}

std::string ClaimedRun::sentence() const {
  return run_id + " " + placement + ": " + (attempt > 1 ? "attempt " + std::to_string(attempt) + ", " : "") +
         holder +
         (died ? ", which has died: bnlab run takes it over"
          : quiet_s > kSilent
              ? ", without a sign of life for " + std::to_string(static_cast<int64_t>(quiet_s)) + " s"
              : "");
}

Json ClaimedRun::json() const {
  Json all = {{"run_id", run_id}, {"placement", placement}, {"attempt", attempt}};
  all.update(process);
  all["died"] = died;
  all["quiet_s"] = quiet_s;
  return all;
}

std::vector<ClaimedRun> claimed_runs(const fs::path& results, const std::string& experiment,
                                     std::vector<std::string>* problems) {
  std::vector<ClaimedRun> claimed;
  for (const fs::path& folder : claimed_folders(results, experiment)) {
    const std::vector<NumberedFile> claims = claims_of(folder);
    struct stat file{};
    if (claims.empty() || ::stat(claims.back().path.c_str(), &file) != 0 || is_counted(claims.back().path))
      continue;  // it has come to an end in the meantime, or nobody has it
    const ClaimHolder holder(claims.back().path);
    if (!holder.damage().empty()) {
      if (problems != nullptr)
        problems->push_back(holder.damage() + "; bnlab run takes it for nobody's claim");
      continue;
    }
    if (holder.has_died() && fs::exists(folder / kRecordFile))
      continue;  // it had published the run before it was killed
    const auto quiet_s = static_cast<double>(std::time(nullptr) - file.st_mtim.tv_sec);
    claimed.push_back({.run_id = folder.parent_path().filename().string(),
                       .placement = folder.filename().string(),
                       .attempt = claims.back().number,
                       .holder = holder.name(),
                       .process = holder.json(),
                       .died = holder.has_died(),
                       .quiet_s = std::max(0.0, quiet_s)});
  }
  return claimed;
}

}  // namespace bnlab
