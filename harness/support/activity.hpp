// What this rank is doing in its training: the step, the part of the step, the norm site, the collective. A
// rank that is stuck leaves it on a page of memory which its launcher reads, and `bnlab trace` records it
// with its times. Where neither is asked for, and outside of traced steps, it costs a few stores per
// exchange.
//
// One process is one rank here: ranks that are threads of a process must not ask for either.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace bnlab {

// Lies in memory that the launcher shares. Written by the rank alone; read once the rank is stuck.
struct ActivityPage {
  std::atomic<int64_t> step;         // counted from 1; 0: training has not begun
  std::atomic<uint32_t> part;        // index into kActivityParts
  std::atomic<uint32_t> collective;  // whether one is under way
  std::array<char, 96> site;         // with the direction; empty outside of exchanges of a site
  std::array<char, 24> op;
  std::array<char, 24> purpose;
};

// `between_steps`: an evaluation or a checkpoint.
inline constexpr std::array<const char*, 6> kActivityParts{"",         "data",      "forward",
                                                           "backward", "optimizer", "what follows the end"};
enum class ActivityPart : uint32_t { none, data, forward, backward, optimizer, between_steps };

// A span of time, for traces. Times are those of the monotonic clock, which all processes of a host share.
struct ActivityEvent {
  std::string name, kind;  // kind: step, part, site or collective
  int64_t begin_ns = 0, end_ns = 0;
  int64_t bytes = 0;  // what the rank hands over to a collective
  std::string purpose = {};
};

class Activity {
 public:
  static void begin_step(int64_t steps_done);
  static void begin_part(ActivityPart part);  // ends the part before
  static void end_step();

  // While it lives, the rank is at this site, or in this collective.
  class AtSite {
   public:
    AtSite(const std::string& site, const char* direction);
    ~AtSite();
    AtSite(const AtSite&) = delete;
    AtSite& operator=(const AtSite&) = delete;

   private:
    size_t event_;
  };
  class InCollective {
   public:
    InCollective(const char* op, const char* purpose, int64_t bytes);
    ~InCollective();
    InCollective(const InCollective&) = delete;
    InCollective& operator=(const InCollective&) = delete;

   private:
    size_t event_;
  };

  // From here on the page is kept up to date, from a training that has not begun; it outlives the training.
  // Null: none is.
  static void keep_on(ActivityPage* page);
  // Records events until they are taken.
  static void record();
  static std::vector<ActivityEvent> take();
};

// "waits at decoder1.norm2 forward of step 17 (all_gather)", "is in backward of step 16".
std::string activity_text(const ActivityPage& page);

// The same of all ranks, those that do the same together: "ranks 0 and 1 wait ...; rank 2 is in ...". Null: a
// rank whose page could not be had, which "does not answer".
std::string activities_text(const std::vector<const ActivityPage*>& pages);

// A page as bytes on their way to a process of the same build, and back. Null where they are no page.
std::string packed(const ActivityPage& page);
std::unique_ptr<ActivityPage> unpacked(const std::string& bytes);

}  // namespace bnlab
