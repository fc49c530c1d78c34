#include "harness/launch/judge.hpp"

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>

#include "harness/components/parameters.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

bool reported_normally(const RankEnd& rank) {
  return rank.report && rank.end.signal == 0 && rank.end.code == 0;
}

bool died(const RankEnd& rank) {
  return !rank.stopped && !reported_normally(rank);
}

// The earliest rank to which `is_suspect` applies, or -1. Where the order is not known a signal comes
// before an exit status: ranks that lose contact leave by themselves, a killed one does not.
template <class Suspect>
int earliest(const std::vector<RankEnd>& ranks, Suspect is_suspect) {
  int found = -1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto place = [&](const RankEnd& r) {
      return 3 * r.order + (r.end.signal == SIGKILL ? 0 : r.end.signal != 0 ? 1 : 2);
    };
    if (is_suspect(ranks[i]) && (found < 0 || place(ranks[i]) < place(ranks[static_cast<size_t>(found)])))
      found = static_cast<int>(i);
  }
  return found;
}

std::string rank_name(int rank) {
  return "rank " + std::to_string(rank);
}

Outcome of_dead_rank(int index, const RankEnd& rank, bool out_of_memory) {
  Outcome outcome{.status = Status::crashed, .rank = index};
  if (rank.end.signal != 0) {
    outcome.signal = signal_name(rank.end.signal);
    outcome.message = rank_name(index) + " was ended by " + outcome.signal;
    if (rank.end.signal == SIGKILL) {  // which no program gets by a fault of its own
      outcome.status = out_of_memory ? Status::oom : Status::interrupted;
      outcome.message += out_of_memory ? ": the kernel ran out of memory" : ", which came from outside";
    }
  } else {
    outcome.message =
        rank_name(index) + " ended without a report, with exit status " + std::to_string(rank.end.code);
  }
  return outcome;
}

// Ranks that had not reported when they were stopped.
std::vector<int> silent_ranks(const std::vector<RankEnd>& ranks) {
  std::vector<int> silent;
  for (size_t i = 0; i < ranks.size(); ++i)
    if (ranks[i].stopped && !ranks[i].report) silent.push_back(static_cast<int>(i));
  return silent;
}

std::string rank_names(const std::vector<int>& ranks) {
  return joined(mapped(ranks, rank_name));
}

Outcome of_own_finding(const std::vector<RankEnd>& ranks, int finder) {
  const RankReport& report = *ranks[static_cast<size_t>(finder)].report;
  const Status status = report.status;
  const auto silent = silent_ranks(ranks);
  const std::string missing =
      status == Status::crashed && !silent.empty() ? " (no report from " + rank_names(silent) + ")" : "";
  return {.status = status, .message = report.message + missing, .rank = finder};
}

Outcome of_lost_contact(const std::vector<RankEnd>& ranks, int witness) {
  const std::string seen = rank_name(witness) + ": " + ranks[static_cast<size_t>(witness)].report->message;
  const auto silent = silent_ranks(ranks);
  if (silent.empty()) return {.status = Status::crashed, .message = seen, .rank = witness};
  return {.status = Status::timeout,
          .message = rank_names(silent) + " did not answer (" + seen + ")",
          .rank = silent.front()};
}

// The number after "oom_kill" in a file of "name number" lines, or nothing.
std::optional<long> oom_kill_count(const std::string& file) {
  std::ifstream in(file);
  std::string key;
  for (long value = 0; in >> key >> value;)
    if (key == "oom_kill") return value;
  return std::nullopt;
}

}  // namespace

Outcome judge(const std::vector<RankEnd>& ranks, Stop stop, double timeout_s, bool out_of_memory) {
  const bool any_stopped = std::ranges::any_of(ranks, [](const RankEnd& r) { return r.stopped; });
  if (stop == Stop::interrupt && any_stopped)
    return {.status = Status::interrupted, .message = "interrupted by a signal"};
  if (const int dead = earliest(ranks, died); dead >= 0)
    return of_dead_rank(dead, ranks[static_cast<size_t>(dead)], out_of_memory);
  const auto is_done = [](const RankEnd& r) { return r.report && has_result(r.report->status); };
  const auto own_finding = [&](const RankEnd& r) {
    return r.report && r.report->status != Status::ok && (!r.report->lost_contact || is_done(r));
  };
  if (const int finder = earliest(ranks, own_finding); finder >= 0) return of_own_finding(ranks, finder);
  // A world may break behind a result, where the run is timed in turns: it stands.
  const auto lost_contact = [&](const RankEnd& r) {
    return r.report && r.report->lost_contact && !is_done(r) && !is_done(ranks.front());
  };
  if (const int witness = earliest(ranks, lost_contact); witness >= 0) return of_lost_contact(ranks, witness);
  if (stop == Stop::timeout) {
    char limit[64];
    std::snprintf(limit, sizeof limit, "not finished after timeout_s = %g s", timeout_s);
    return {.status = Status::timeout, .message = limit};
  }
  const auto silent = [](const RankEnd& r) { return !r.report; };
  if (const int left = earliest(ranks, silent); left >= 0)
    return {.status = Status::timeout,
            .message = rank_name(left) + " did not end after the others had finished",
            .rank = left};
  return {};
}

void refuse_full_disk(const RunSpec& run, const Outcome& outcome) {
  // A rank that could not even write its report has left its reason in the log alone.
  const std::string said = outcome.log_tail.empty() ? "" : outcome.log_tail.back();
  for (const int reason : {ENOSPC, EDQUOT}) {
    for (const std::string& text : {outcome.message, said}) {
      if (text.find(std::strerror(reason)) != std::string::npos) {
        throw Error(Error::Kind::environment,
                    run.id + ": " + text +
                        "; free some disk, or name another folder with --results, and start it again");
      }
    }
  }
}

std::vector<std::string> log_tail(const std::string& file, size_t lines) {
  std::ifstream in(file);
  std::deque<std::string> last;
  for (std::string line; std::getline(in, line);) {
    last.push_back(line);
    if (last.size() > lines) last.pop_front();
  }
  return {last.begin(), last.end()};
}

long out_of_memory_kills() {
  std::ifstream groups("/proc/self/cgroup");  // "0::/path" (v2), "9:memory:/path" (v1)
  for (std::string line; std::getline(groups, line);) {
    const size_t memory = line.find(":memory:");
    const std::string path = line.substr(line.rfind(':') + 1);
    const std::string file = line.rfind("0::", 0) == 0 ? "/sys/fs/cgroup" + path + "/memory.events"
                             : memory != std::string::npos
                                 ? "/sys/fs/cgroup/memory" + path + "/memory.oom_control"
                                 : "";
    if (const auto count = oom_kill_count(file)) return *count;
  }
  return oom_kill_count("/proc/vmstat").value_or(0);  // without a cgroup, that of the whole machine
}

}  // namespace bnlab
