#include "harness/report/published.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/text_table.hpp"

namespace bnlab {
namespace {

constexpr size_t kMostSentences = 3;  // on one number

void add_relative(const Published& number, const std::string& cell, const std::vector<ReportRow>& rows,
                  std::vector<PublishedResult>& results) {
  for (const ReportRow& row : rows) {
    if (!row.relative_images_per_s) continue;
    const Interval here{row.images_per_s.size(), *row.relative_images_per_s,
                        std::numeric_limits<double>::quiet_NaN()};
    results.push_back({number, cell + (rows.size() > 1 ? " " + row.placement : ""), {}, here});
  }
}

std::string published_text(const Published& number) {
  return "Published " + number.metric + " " + fixed(number.from, 3) +
         (number.from == number.to ? "" : " to " + fixed(number.to, 3)) + " (" + number.source + "): ";
}

std::string sentence(const PublishedResult& result) {
  const Published& number = result.published;
  const std::string cell = published_text(number) + result.cell;
  if (result.here.n == 0) return cell + " has no finished run yet.";
  const double mean = result.here.mean;
  const std::string where = mean < number.from ? fixed(number.from - mean, 3) + " below"
                            : mean > number.to ? fixed(mean - number.to, 3) + " above"
                                               : "as published";
  const bool cost = is_cost(number.metric) || number.metric == kRelativeImagesPerS;
  return cell + " has " + fixed(mean, 3) + " (" + (cost ? "" : number.population + " statistics, ") +
         "n = " + std::to_string(result.here.n) + "), " + where + ".";
}

std::string sentence_for_all(const std::vector<PublishedResult>& results) {
  const auto mean = [](const PublishedResult& result) { return result.here.mean; };
  const auto [lowest, highest] = std::ranges::minmax_element(results, {}, mean);
  const auto text = [](const PublishedResult& result) {
    return fixed(result.here.mean, 3) + " (" + result.cell + ")";
  };
  return published_text(lowest->published) + "here from " + text(*lowest) + " to " + text(*highest) + ".";
}

}  // namespace

std::vector<PublishedResult> beside_published(const std::vector<Published>& published,
                                              const std::vector<CellRecords>& cells,
                                              const std::vector<ReportCell>& reported) {
  std::vector<PublishedResult> results;
  for (const Published& number : published) {
    for (size_t i = 0; i < cells.size(); ++i) {
      const CellRecords& cell = cells[i];
      if (!cell.lies_at(number.at)) continue;
      const std::string name = (cell.group == "all" ? "" : cell.group + " ") + cell.strategy;
      if (number.metric == kRelativeImagesPerS) {
        add_relative(number, name, reported[i].rows, results);
        continue;
      }
      const SeedValues values =
          values_by_seed(cell.records_at(number.at, cell.one_per_seed()), number.metric, number.population);
      results.push_back({number, name, values, over_seeds(values)});
    }
  }
  return results;
}

std::vector<std::string> published_sentences(const std::vector<PublishedResult>& results) {
  std::vector<std::string> sentences;
  for (size_t begin = 0, end = 0; begin < results.size(); begin = end) {
    std::vector<PublishedResult> of_one, finished;
    const std::string number = published_text(results[begin].published);
    for (end = begin; end < results.size() && published_text(results[end].published) == number; ++end) {
      of_one.push_back(results[end]);
      if (results[end].here.n > 0) finished.push_back(results[end]);
    }
    if (finished.size() > kMostSentences) {
      sentences.push_back(sentence_for_all(finished));
      continue;
    }
    for (const PublishedResult& result : of_one) sentences.push_back(sentence(result));
  }
  return sentences;
}

}  // namespace bnlab
