#include "harness/support/activity.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace bnlab {
namespace {

constexpr size_t kNoEvent = static_cast<size_t>(-1);

struct State {
  ActivityPage* page = nullptr;
  bool recording = false;
  std::vector<ActivityEvent> events;
  size_t step = kNoEvent, part = kNoEvent;  // the events under way
};

State& state() {
  static State one;
  return one;
}

bool is_idle(const State& s) {
  return s.page == nullptr && !s.recording;
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

size_t begin(const std::string& name, const char* kind, int64_t bytes = 0, const char* purpose = "") {
  State& s = state();
  if (!s.recording) return kNoEvent;
  s.events.push_back({.name = name, .kind = kind, .begin_ns = now_ns(), .bytes = bytes, .purpose = purpose});
  return s.events.size() - 1;
}

void end(size_t event) {
  State& s = state();
  if (event < s.events.size()) s.events[event].end_ns = now_ns();
}

template <size_t N>
void write(std::array<char, N>& place, const std::string& text) {
  std::strncpy(place.data(), text.c_str(), N - 1);
}

struct Doing {
  std::string verb, rest;  // "wait", "at ... of step 17"
  bool operator==(const Doing&) const = default;
};

Doing doing(const ActivityPage& page) {
  const std::string of_step = " of step " + std::to_string(page.step);
  const std::string part = kActivityParts[std::min<size_t>(page.part, kActivityParts.size() - 1)];
  if (page.step == 0) return {"be", "before the first step"};
  if (page.collective != 0) {
    const std::string where = page.site[0] != '\0'
                                  ? std::string("at ") + page.site.data()
                                  : "for " + std::string(page.purpose.data()) + " in " + part;
    return {"wait", where + of_step + " (" + page.op.data() + ")"};
  }
  return part.empty() ? Doing{"be", "between steps, after step " + std::to_string(page.step)}
                      : Doing{"be", "in " + part + of_step};
}

std::string conjugated(const std::string& verb, bool several) {
  if (verb == "answer") return several ? "do not answer" : "does not answer";
  return verb == "wait" ? (several ? "wait" : "waits") : (several ? "are" : "is");
}

std::string names(const std::vector<size_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

void Activity::begin_step(int64_t steps_done) {
  State& s = state();
  if (is_idle(s)) return;
  if (s.page != nullptr) s.page->step = steps_done + 1;
  s.step = begin("step " + std::to_string(steps_done + 1), "step");
}

void Activity::begin_part(ActivityPart part) {
  State& s = state();
  if (is_idle(s)) return;
  if (s.page != nullptr) s.page->part = static_cast<uint32_t>(part);
  end(std::exchange(s.part, kNoEvent));
  if (part != ActivityPart::none) s.part = begin(kActivityParts[static_cast<size_t>(part)], "part");
}

void Activity::end_step() {
  if (!is_idle(state())) {
    begin_part(ActivityPart::none);
    end(std::exchange(state().step, kNoEvent));
  }
}

Activity::AtSite::AtSite(const std::string& site, const char* direction) : event_(kNoEvent) {
  State& s = state();
  if (is_idle(s)) return;
  const std::string text = site + " " + direction;
  if (s.page != nullptr) write(s.page->site, text);
  event_ = begin(text, "site");
}

Activity::AtSite::~AtSite() {
  if (ActivityPage* const page = state().page; page != nullptr && std::uncaught_exceptions() == 0)
    page->site[0] = '\0';
  end(event_);
}

Activity::InCollective::InCollective(const char* op, const char* purpose, int64_t bytes) : event_(kNoEvent) {
  State& s = state();
  if (s.page != nullptr) {
    write(s.page->op, op);
    write(s.page->purpose, purpose);
    s.page->collective = 1;
  }
  if (s.recording) event_ = begin(op, "collective", bytes, purpose);
}

// A collective that fails stays on the page: it is where the rank was.
Activity::InCollective::~InCollective() {
  if (ActivityPage* const page = state().page; page != nullptr && std::uncaught_exceptions() == 0)
    page->collective = 0;
  end(event_);
}

void Activity::keep_on(ActivityPage* page) {
  state().page = page;
  if (page != nullptr) {
    page->step = 0;
    page->part = 0;
    page->collective = 0;
    page->site[0] = '\0';
  }
}

void Activity::record() {
  state().recording = true;
}

std::vector<ActivityEvent> Activity::take() {
  state().recording = false;
  return std::exchange(state().events, {});
}

std::string activity_text(const ActivityPage& page) {
  const Doing what = doing(page);
  return conjugated(what.verb, /*several=*/false) + " " + what.rest;
}

std::string activities_text(const std::vector<const ActivityPage*>& pages) {
  std::vector<std::pair<Doing, std::vector<size_t>>> groups;
  for (size_t rank = 0; rank < pages.size(); ++rank) {
    const Doing what = pages[rank] == nullptr ? Doing{"answer", ""} : doing(*pages[rank]);
    const auto same = std::ranges::find_if(groups, [&](const auto& group) { return group.first == what; });
    if (same == groups.end())
      groups.push_back({what, {rank}});
    else
      same->second.push_back(rank);
  }
  std::string text;
  for (const auto& [what, ranks] : groups) {
    text += (text.empty() ? "" : "; ") + names(ranks) + " " + conjugated(what.verb, ranks.size() > 1) +
            (what.rest.empty() ? "" : " ") + what.rest;
  }
  return text;
}

std::string packed(const ActivityPage& page) {
  std::string bytes(sizeof page, '\0');
  std::memcpy(bytes.data(), static_cast<const void*>(&page), sizeof page);
  return bytes;
}

std::unique_ptr<ActivityPage> unpacked(const std::string& bytes) {
  if (bytes.size() != sizeof(ActivityPage)) return nullptr;
  auto page = std::make_unique<ActivityPage>();
  std::memcpy(static_cast<void*>(page.get()), bytes.data(), sizeof *page);
  return page;
}

}  // namespace bnlab
