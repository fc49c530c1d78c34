// Several processes, on several machines, share one results folder by claims. Who starts a run first leaves a file beside
// its folder, which tells the number of the attempt, and works in a hidden folder (attempts.hpp), which becomes
// RUN_ID/PLACEMENT by one rename once its record is there.
//
// A claim appears whole and has one winner, because it is made by link(2) from the file of its process (company.hpp). The
// highest number owns the run. Nobody takes the claim of somebody else who lives; a run is taken over by the next number
// and by renaming the folder that the one before worked in, so that whoever wakes up late finds nothing to publish.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "harness/queue/company.hpp"

namespace bnlab {

class Claim {
 public:
  // Claims the next attempt at the run that `run_folder` is for, and takes over the files of the last one. Nothing where
  // the run is `finished`, as one of its folders tells once the claim stands, or where somebody has it: then `holder` says
  // who. A claim whose process has died is taken over at once where that can be seen (on this machine), elsewhere once it
  // was not renewed for `steal_after`. Throws Error (environment).
  using Finished = std::function<bool(const std::filesystem::path& folder)>;
  static std::optional<Claim> take(const std::filesystem::path& run_folder, const Company& company,
                                   std::chrono::seconds steal_after, const Finished& finished,
                                   std::string& holder);

  int attempts() const;                                            // without an end, this one included
  const std::filesystem::path& folder() const { return folder_; }  // where this attempt works; it exists

  // Renews the claim now and then; cheap, to be called often. False once the run was taken over, for good.
  bool beat();
  // Makes the attempt's folder the run's. False where the run was taken over. Attempts stay
  // counted with `keep_counting`, else they are forgotten.
  bool publish(bool keep_counting);
  void withdraw();    // as if this attempt had never been; what is in its folder stays
  bool owns() const;  // whether the run was not taken over; looks at the disk

 private:
  Claim(std::filesystem::path run_folder, int number, std::string text, std::chrono::seconds steal_after);
  bool inherit(const Finished& finished);
  bool becomes_the_runs(const std::filesystem::path& folder) const;
  void clear_up() const;

  std::filesystem::path run_folder_, folder_;
  int number_;
  std::string text_;  // of the file
  std::chrono::steady_clock::duration renew_every_;
  std::chrono::steady_clock::time_point renewed_;
  bool lost_ = false;  // for good
};

}  // namespace bnlab
