#include "harness/report/short_answer.hpp"

#include <algorithm>
#include <array>
#include <regex>

#include "harness/components/parameters.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

constexpr const char* kPrediction = "bnlab cost";

struct Named {
  std::string experiment, comparison;
};
using Part = std::vector<Named>;  // the same comparison in one experiment and in others

std::vector<Part> parts_of(const std::string& text, const std::string& own) {
  static const std::regex token(R"(\]\(\.\./([\w.-]+)/README\.md\)|`([^`]+)`| - )");
  std::vector<Part> parts(1);
  std::string linked;  // the experiment of the last link, until its comparison is known
  const auto end_link = [&] {
    if (!linked.empty() && !parts.back().empty())
      parts.back().push_back({linked, parts.back().front().comparison});
    linked = "";
  };
  for (std::sregex_iterator found(text.begin(), text.end(), token), end; found != end; ++found) {
    if ((*found)[2].matched) {
      parts.back().push_back({linked.empty() ? own : linked, (*found)[2]});
      linked = "";
      continue;
    }
    end_link();
    if ((*found)[1].matched)
      linked = (*found)[1];
    else if (!parts.back().empty())
      parts.emplace_back();
  }
  end_link();
  return parts;
}

struct Compared {
  const ContrastResult& result;
  const std::vector<std::string>& tasks;
};

Compared compared(const Named& named, const GroundsOf& grounds_of) {
  const Grounds& there = grounds_of(named.experiment);
  const auto found = std::ranges::find(there.contrasts, named.comparison, comparison_name);
  if (found != there.contrasts.end()) return {*found, there.tasks};
  const std::string near = nearest(named.comparison, mapped(there.contrasts, comparison_name));
  throw Error(Error::Kind::usage, "no comparison `" + named.comparison + "` in " + named.experiment +
                                      (near.empty() ? "; bnlab report " + named.experiment + " has all"
                                                    : "; did you mean `" + near + "`?"));
}

bool is_decided(const ContrastResult& result) {
  return result.verdict == Verdict::better || result.verdict == Verdict::worse ||
         result.verdict == Verdict::equal;
}

// Of one comparison by itself.
Foundation founded(const ContrastResult& result) {
  const bool has_direction =
      result.verdict == Verdict::direction_above || result.verdict == Verdict::direction_below;
  if (!is_decided(result)) return has_direction ? Foundation::seen : Foundation::open;
  return result.declared && result.declared->after_runs == 0 ? Foundation::once : Foundation::seen;
}

// Whether two compare the same strategies and statistics, in one order unless they are equal. Options may
// differ ("group_norm" and "group_norm(groups=4)") where the strategies differ by more than these.
bool ask_the_same(const ContrastResult& a, const ContrastResult& b) {
  const auto without_options = [](const std::string& label) { return label.substr(0, label.find('(')); };
  const bool by_name = without_options(a.strategies[0]) != without_options(a.strategies[1]);
  const auto sides = [&](const ContrastResult& result) {
    const auto strategy = [&](size_t side) {
      return by_name ? without_options(result.strategies[side]) : result.strategies[side];
    };
    return std::array{strategy(0) + " " + result.contrast.population,
                      strategy(1) + " " + result.contrast.population_above()};
  };
  const auto of_a = sides(a), of_b = sides(b);
  const bool either_way = a.verdict == Verdict::equal && b.verdict == Verdict::equal;
  return of_a == of_b || (either_way && of_a == std::array{of_b[1], of_b[0]});
}

template <class Range, class Projection>
bool are_apart(const Range& a, const Range& b, Projection of) {
  return std::ranges::none_of(
      a, [&](const auto& one) { return std::ranges::find(b, std::invoke(of, one), of) != b.end(); });
}

bool holds_in(const Compared& other, const Compared& first) {
  return founded(other.result) == Foundation::once && other.result.verdict == first.result.verdict &&
         (are_apart(other.tasks, first.tasks, std::identity()) ||
          are_apart(other.result.differences, first.result.differences, &SeedValues::value_type::first));
}

Foundation founded(const Part& part, const GroundsOf& grounds_of) {
  if (part.empty()) {
    throw Error(Error::Kind::usage,
                "expected a comparison in backticks behind \"Rests on\" and each \" - \"");
  }
  if (part.size() == 1 && part[0].comparison == kPrediction) return Foundation::predicted;
  const Compared first = compared(part[0], grounds_of);
  bool holds = false, is_contradicted = false;
  for (const Named& named : part) {
    const Compared other = compared(named, grounds_of);
    if (!ask_the_same(first.result, other.result)) {
      throw Error(Error::Kind::usage, "`" + named.comparison + "` in " + named.experiment +
                                          " asks another thing than `" + part[0].comparison +
                                          "`; \" - \" begins another part of the answer");
    }
    holds = holds || holds_in(other, first);
    is_contradicted =
        is_contradicted || (is_decided(other.result) && other.result.verdict != first.result.verdict);
  }
  if (is_contradicted) return Foundation::open;
  const Foundation alone = founded(first.result);
  return alone == Foundation::once && holds ? Foundation::firm : alone;
}

}  // namespace

const char* name(Foundation foundation) {
  return std::array{"firm", "once", "seen", "predicted", "open"}[static_cast<size_t>(foundation)];
}

Grounds grounds(const Experiment& experiment, const ExperimentReport& report) {
  return {mapped(experiment.runs, [](const RunSpec& run) { return run.task.at("name").get<std::string>(); }),
          report.contrasts};
}

ShortAnswer short_answer_of(const ResultPage& page, const std::string& experiment,
                            const GroundsOf& grounds_of) {
  if (page.title.empty()) return {"no answer yet", Foundation::open};
  const size_t length = width(page.title);
  const auto words = static_cast<size_t>(std::ranges::count(page.title, ' ')) + 1;
  if (length > kLongestShortAnswer || words > kMostWordsOfShortAnswer) {
    throw Error(Error::Kind::usage, "expected a title of at most " + std::to_string(kMostWordsOfShortAnswer) +
                                        " words and " + std::to_string(kLongestShortAnswer) +
                                        " characters, got " + std::to_string(words) + " and " +
                                        std::to_string(length) +
                                        "; keep one number, and leave conditions to **In numbers.**");
  }
  if (page.rests_on.empty()) return {page.title, Foundation::seen};
  Foundation weakest = Foundation::firm;
  for (const Part& part : parts_of(page.rests_on, experiment))
    weakest = std::max(weakest, founded(part, grounds_of));
  return {page.title, weakest};
}

}  // namespace bnlab
