#include "harness/transfer/chrome_trace.hpp"

#include <algorithm>
#include <limits>
#include <map>

#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

constexpr double kNanosecond = 1e-9;

double seconds_of(const ActivityEvent& event) {
  return static_cast<double>(event.end_ns - event.begin_ns) * kNanosecond;
}

std::vector<const ActivityEvent*> of_kind(const std::vector<ActivityEvent>& events, const std::string& kind) {
  std::vector<const ActivityEvent*> found;
  for (const ActivityEvent& event : events)
    if (event.kind == kind) found.push_back(&event);
  return found;
}

// The event of a kind in which another one begins; null if there is none.
const ActivityEvent* around(const std::vector<ActivityEvent>& events, const ActivityEvent& inner,
                            const std::string& kind) {
  const ActivityEvent* found = nullptr;
  for (const ActivityEvent& event : events)
    if (event.kind == kind && event.begin_ns <= inner.begin_ns && inner.begin_ns <= event.end_ns)
      found = &event;
  return found;
}

std::string place_of(const std::vector<ActivityEvent>& events, const ActivityEvent& collective) {
  const ActivityEvent* const site = around(events, collective, "site");
  const ActivityEvent* const part = around(events, collective, "part");
  const ActivityEvent* const step = around(events, collective, "step");
  const std::string where = site != nullptr   ? site->name
                            : part != nullptr ? collective.purpose + " in " + part->name
                                              : collective.purpose;
  return where + (step != nullptr ? " of " + step->name : "");
}

// The collectives of every rank, in order; empty where the ranks do not agree on them.
std::vector<std::vector<const ActivityEvent*>> common_collectives(const ActivityOfRanks& ranks) {
  auto all = mapped(ranks, [](const auto& events) { return of_kind(events, "collective"); });
  for (const auto& of_rank : all) {
    const bool alike =
        std::ranges::equal(of_rank, all.front(), [](const ActivityEvent* a, const ActivityEvent* b) {
          return a->name == b->name && a->purpose == b->purpose;
        });
    if (!alike) return {};
  }
  return all;
}

// Seconds that each rank waits in the n-th collective, and the rank that comes last.
struct Arrival {
  std::vector<double> waited;
  size_t last = 0;
};

Arrival arrival(const std::vector<std::vector<const ActivityEvent*>>& collectives, size_t n) {
  Arrival found;
  for (size_t rank = 1; rank < collectives.size(); ++rank)
    if (collectives[rank][n]->begin_ns > collectives[found.last][n]->begin_ns) found.last = rank;
  for (const auto& of_rank : collectives) {
    const int64_t waited = collectives[found.last][n]->begin_ns - of_rank[n]->begin_ns;
    // A rank that only sends may have gone on before the last one came.
    found.waited.push_back(std::min(static_cast<double>(waited) * kNanosecond, seconds_of(*of_rank[n])));
  }
  return found;
}

}  // namespace

std::vector<Wait> waits_of(const ActivityOfRanks& ranks) {
  const auto collectives = common_collectives(ranks);
  std::vector<Wait> waits;
  for (size_t n = 0; !collectives.empty() && n < collectives.front().size(); ++n) {
    const Arrival at = arrival(collectives, n);
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (rank != at.last && at.waited[rank] > 0) {
        waits.push_back({.rank = static_cast<int>(rank),
                         .for_rank = static_cast<int>(at.last),
                         .seconds = at.waited[rank],
                         .collective = collectives[rank][n]->name,
                         .where = place_of(ranks[rank], *collectives[rank][n])});
      }
    }
  }
  std::ranges::stable_sort(waits, std::greater<>(), &Wait::seconds);
  return waits;
}

Json chrome_trace(const ActivityOfRanks& ranks) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& events : ranks)
    for (const ActivityEvent& event : events) first = std::min(first, event.begin_ns);
  const auto collectives = common_collectives(ranks);
  Json list = Json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    list.push_back({{"ph", "M"},
                    {"name", "process_name"},
                    {"pid", rank},
                    {"args", {{"name", "rank " + std::to_string(rank)}}}});
    size_t n = 0;
    for (const ActivityEvent& event : ranks[rank]) {
      Json args = Json::object();
      if (event.kind == "collective") {
        args = {{"bytes", event.bytes}, {"purpose", event.purpose}};
        if (!collectives.empty()) {
          const Arrival at = arrival(collectives, n);
          args["waited_us"] = at.waited[rank] * 1e6;
          if (rank != at.last) args["waited_for_rank"] = at.last;
        }
        ++n;
      }
      list.push_back({{"ph", "X"},
                      {"name", event.name},
                      {"cat", event.kind},
                      {"pid", rank},
                      {"tid", 0},
                      {"ts", static_cast<double>(event.begin_ns - first) * 1e-3},
                      {"dur", static_cast<double>(event.end_ns - event.begin_ns) * 1e-3},
                      {"args", args}});
    }
  }
  return {{"traceEvents", list}, {"displayTimeUnit", "ms"}};
}

Json shares_of(const ActivityOfRanks& ranks) {
  std::map<std::string, double> sums;
  double steps = 0;
  for (const auto& events : ranks) {
    for (const ActivityEvent& event : events) {
      steps += event.kind == "step" ? 1 : 0;
      if (event.kind == "step" || event.kind == "collective")
        sums[event.kind == "step" ? "step" : "exchange"] += seconds_of(event);
      else if (event.kind == "part")
        sums[event.name] += seconds_of(event);
    }
  }
  double waiting = 0;
  for (const Wait& wait : waits_of(ranks)) waiting += wait.seconds;
  Json shares = Json::object();
  for (const char* name : {"step", "data", "forward", "backward", "optimizer", "exchange"})
    shares[name] = steps > 0 ? sums[name] / steps : 0;
  shares["waiting"] = steps > 0 ? waiting / steps : 0;
  return shares;
}

}  // namespace bnlab
