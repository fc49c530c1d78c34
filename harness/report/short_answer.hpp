// The answer of an experiment in a line, for a reader with three minutes, and how well it is founded. People
// write the line and name the comparisons that it rests on; the program takes the word from what came of
// these:
//
//   # Synchronise: it wins 5 points over training and 9 over freezing
//   **In numbers.** ...
//   Rests on
//   - `sync - per_tower at 8x2, mean_iou saved`, again in [freezing](../freezing/README.md)
//   - `sync - frozen at 8x2, mean_iou saved`
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/report/report.hpp"
#include "harness/report/result_page.hpp"

namespace bnlab {

inline constexpr size_t kLongestShortAnswer = 90;  // characters
inline constexpr size_t kMostWordsOfShortAnswer = 15;

// The best first. A verdict that was declared before the first run is firm where it came out again, declared
// likewise, on other seeds or other data, and else stands once. Seen is what was not declared so, or has too
// few seeds for a verdict; open what is undecided, or came out otherwise elsewhere.
enum class Foundation { firm, once, seen, predicted, open };
const char* name(Foundation foundation);

struct ShortAnswer {
  std::string text;
  Foundation foundation = Foundation::open;
};

// What an answer may rest on: the comparisons of an experiment, and the tasks of its runs.
struct Grounds {
  std::vector<std::string> tasks;
  std::vector<ContrastResult> contrasts;
};
Grounds grounds(const Experiment& experiment, const ExperimentReport& report);
using GroundsOf = std::function<const Grounds&(const std::string& experiment)>;

// The title of the page of `experiment`, and how well it is founded by what the page says that it rests on.
// That names comparisons of its own; " - " begins another part of the answer, which is as good as its
// weakest part. Behind a link to an experiment stands the name there, unless that is the same. `bnlab cost`
// stands for a prediction. Throws Error (usage) where the title is too long, or a comparison is none or asks
// another thing.
ShortAnswer short_answer_of(const ResultPage& page, const std::string& experiment,
                            const GroundsOf& grounds_of);

}  // namespace bnlab
