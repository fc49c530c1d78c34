// Several processes, on several machines, share one results folder by claims. The process that starts a run
// first leaves a file beside the run's folder, which tells the number of the attempt, and works in a hidden
// folder (attempts.hpp), which becomes RUN_ID/PLACEMENT by one rename once the record is there.
//
// A claim appears whole and has one winner, because it is made by link(2) from the file of its process
// (active_processes.hpp). The highest number owns the run. A result that is there stays in its place while
// the run is made again, until another result takes it by one rename. No process takes a run from another one
// that is alive. It takes over a dead one's by the next number and by renaming the folder in which that one
// worked, so that a process which only slept, and was taken for dead, finds nothing to publish when it wakes
// up.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/queue/active_processes.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// How often a claim is renewed that others may take over after so long.
std::chrono::duration<double> renewal(std::chrono::seconds steal_after);

class Claim {
 public:
  // Claims the next attempt at the run that `run_folder` is for, and takes over the files of the last one.
  // Returns nothing where the run is `finished`, which is asked of each of its folders once the claim stands,
  // and where another process has it: then `holder` says which one. A claim whose process has died is taken
  // over at once if that can be seen (on this machine), otherwise once it was not renewed for `steal_after`,
  // and at least for twice the time in which its process renews.
  // Throws Error (environment).
  using Finished = std::function<bool(const std::filesystem::path& folder)>;
  static std::optional<Claim> take(const std::filesystem::path& run_folder, const ActiveProcesses& active,
                                   std::chrono::seconds steal_after, const Finished& finished,
                                   std::string& holder);

  int attempts() const;                                            // whose ranks were lost, and this one
  const std::filesystem::path& folder() const { return folder_; }  // where this attempt works; it exists
  bool made_again() const { return made_again_; }  // the run has a result, which is in its place
  // What was wrong with the claim that this one took over; "" if nothing was.
  const std::string& damage() const { return damage_; }

  // Renews the claim now and then; cheap, to be called often. False once the run was taken over, for good.
  bool beat();
  // Makes the attempt's folder the run's, in place of what is there. False where the run was taken over. The
  // attempts made so far stay counted with `keep_counting`; otherwise their files are removed.
  bool publish(bool keep_counting);
  void withdraw();    // as if this attempt had never been; what is in its folder stays
  void drop();        // the same, but nothing of any attempt stays
  bool owns() const;  // whether the run was not taken over; looks at the disk

 private:
  Claim(std::filesystem::path run_folder, int number, std::string text, std::chrono::seconds steal_after);
  bool inherit(const Finished& finished);
  bool becomes_the_runs(const std::filesystem::path& folder) const;
  void clear_up() const;

  std::filesystem::path run_folder_, folder_;
  int number_;
  std::string text_;
  std::string damage_;
  std::chrono::steady_clock::duration renew_every_;
  std::chrono::steady_clock::time_point renewed_;
  bool made_again_ = false;
  bool lost_ = false;  // for good
};

// A run that is claimed.
struct ClaimedRun {
  std::string run_id, placement;
  int attempt = 1;
  std::string holder;  // "process 17 on node3 (job 4711) since 2026-11-21T06:30:00Z"
  Json process;        // the same as {"host", "pid", "job", "since"}
  bool died = false;   // as far as it can be seen from here
  double quiet_s = 0;  // since the claim was last renewed, by this machine's clock

  std::string sentence() const;
  Json json() const;
};

// Sorted by folder. Claims that no process holds are left out: those of a world that was lost, and those of
// a process that was killed after it had published its run. Damaged ones are left out and described in
// `problems`, if given.
std::vector<ClaimedRun> claimed_runs(const std::filesystem::path& results, const std::string& experiment,
                                     std::vector<std::string>* problems = nullptr);

}  // namespace bnlab
