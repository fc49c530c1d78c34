#include "harness/experiment/contrasts.hpp"

#include <algorithm>

#include "harness/experiment/dotted.hpp"
#include "harness/experiment/matching.hpp"
#include "harness/population.hpp"

namespace bnlab {
namespace {

// Checks one contrast against the runs.
class Checker {
 public:
  Checker(const Expansion& expansion, std::string path, Mistakes& mistakes)
      : expansion_(expansion), path_(std::move(path)), mistakes_(mistakes) {}

  // The label of the strategy that `name` means: a label of the matrix, or a name that one label has;
  // "" if there is none.
  std::string label_of(const std::string& key, const std::string& name) const {
    std::vector<std::string> labels;
    std::vector<std::string> named;
    for (const auto& run : expansion_.cells) {
      const std::string text = label(run["strategy"]);
      if (std::count(labels.begin(), labels.end(), text) > 0) {
        continue;
      }
      labels.push_back(text);
      if (run["strategy"]["name"] == name) {
        named.push_back(text);
      }
    }
    if (std::count(labels.begin(), labels.end(), name) > 0) {
      return name;
    }
    if (named.size() == 1) {
      return named[0];
    }
    mistakes_.add(path_ + "." + key,
                  named.empty() ? "no run has the strategy " + shown(name) + suggestion(name, labels)
                                : shown(name) + " is the name of several strategies" + suggestion("", named));
    return "";
  }

  void check_cells(const Contrast& contrast) const {
    std::vector<Json> at;
    for (const auto& run : expansion_.cells) {
      if (matches(contrast.at, run)) {
        at.push_back(run);
      }
    }
    if (at.empty()) {
      report_no_match(contrast.at, expansion_.cells, path_ + ".at", mistakes_);
      return;
    }
    for (const auto& strategy : {contrast.strategy, contrast.above}) {
      check_strategy(contrast, strategy, at);
    }
  }

 private:
  void check_strategy(const Contrast& contrast, const std::string& strategy,
                      const std::vector<Json>& at) const {
    bool compared = false;
    for (const auto& run : at) {
      if (label(run["strategy"]) != strategy) {
        continue;
      }
      compared = true;
      check_population(contrast.population, run);
    }
    if (!compared) {
      mistakes_.add(path_ + ".at", "no run of " + strategy + " matches");
    }
  }

  void check_population(const std::string& population, const Json& run) const {
    const std::string path = path_ + ".population";
    if (population == kAveragedWeights) {
      if (run["weight_ema"].is_null()) {
        mistakes_.add(path, "the runs have no averaged weights: weight_ema is null");
      }
      return;
    }
    const std::string problem = population_problem(population, run["towers"]);
    const Json& asked = run["populations"];
    if (!problem.empty()) {
      mistakes_.add(path, problem);
    } else if (std::count(asked.begin(), asked.end(), population) == 0) {
      mistakes_.add(path, shown(population) + " is not among the populations of the runs, " + shown(asked));
    }
  }

  const Expansion& expansion_;
  std::string path_;
  Mistakes& mistakes_;
};

Contrast read_contrast(const Json& given, const Json& written) {
  auto contrast = read_options<Contrast>(given);
  contrast.as_written = written;
  return contrast;
}

// Whether each part has a type that can be read; the others have been reported.
bool is_readable(const Json& given) {
  const auto is_text = [&](const char* key) { return given.contains(key) && given[key].is_string(); };
  const auto& margin = given.contains("equivalence_margin") ? given["equivalence_margin"] : Json();
  return is_text("metric") && is_text("strategy") && is_text("above") && is_text("population") &&
         given["at"].is_object() && (margin.is_null() || margin.is_number());
}

}  // namespace

std::vector<Contrast> read_contrasts(const Json& contrasts, const Json& written, const Expansion& expansion,
                                     Mistakes& mistakes) {
  std::vector<Contrast> found;
  if (expansion.cells.empty()) {
    return found;  // a mistake in the matrix, which has been reported
  }
  for (size_t i = 0; i < contrasts.size(); ++i) {
    if (!contrasts[i].is_object() || !is_readable(contrasts[i])) {
      continue;
    }
    const std::string path = "contrasts[" + std::to_string(i) + "]";
    const Checker checker(expansion, path, mistakes);
    Contrast contrast = read_contrast(contrasts[i], written[i]);
    const auto& mistaken = expansion.mistaken;
    bool judged = check_keys(contrast.at, path + ".at", mistakes);
    for (const auto& [key, unused] : contrast.at.items()) {
      judged = judged && mistaken.count(top_level(key)) == 0;
    }
    if (mistaken.count("strategy") == 0) {
      contrast.strategy = checker.label_of("strategy", contrast.strategy);
      contrast.above = checker.label_of("above", contrast.above);
      const bool known = !contrast.strategy.empty() && !contrast.above.empty();
      if (known && contrast.strategy == contrast.above) {
        mistakes.add(path + ".above", "expected another strategy than " + contrast.strategy);
      }
      if (known && judged && mistaken.count("populations") == 0 && mistaken.count("towers") == 0) {
        checker.check_cells(contrast);
      }
    }
    found.push_back(std::move(contrast));
  }
  return found;
}

}  // namespace bnlab
