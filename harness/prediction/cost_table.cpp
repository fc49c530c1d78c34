#include "harness/prediction/cost_table.hpp"

#include <algorithm>
#include <array>
#include <functional>

#include "harness/store/record.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

// Where nothing is known of the step: for which it is said what exchanges cost it.
constexpr std::array<double, 3> kUsualStepsMs{10, 30, 100};
constexpr const char* kAskForAStep =
    "For your own step give --step-ms, the milliseconds of one on a single GPU, or --peak-tflops and "
    "--bandwidth-gb of the GPU. --seconds measures it here.";

// "96.9 % (89.7 to 99.2)"
std::string in_words(const Estimate& estimate, double unit, const std::string& sign) {
  return significant(estimate.mid * unit, 3) + sign + " (" + significant(estimate.low * unit, 3) + " to " +
         significant(estimate.high * unit, 3) + ")";
}

// What exchanges leave of the images/s of a step that takes so long without them.
double kept(const CostRow& row, double step_ms) {
  return step_ms / (step_ms + row.more.mid * 1e3);
}

// Of the first strategy that exchanges statistics, on each number of ranks.
std::string answer_of(const std::vector<CostRow>& rows) {
  const auto first = std::ranges::find_if(rows, &CostRow::is_compared);
  if (first == rows.end()) return "";
  const bool timed = first->profile.is_timed();
  std::string text = first->profile.strategy + (timed ? " keeps " : " takes longer than ") +
                     (timed ? "" : first->baseline + ": ");
  bool begins = true;
  for (const CostRow& row : rows) {
    if (!row.is_compared() || row.profile.run != first->profile.run ||
        row.profile.exchange != first->profile.exchange)
      continue;
    const std::string ranks = " on " + std::to_string(row.ranks) +
                              (!begins                          ? ""
                               : row.profile.exchange == "nccl" ? " GPUs"
                                                                : " ranks");
    text += (begins ? "" : ", ") +
            (timed ? in_words(row.relative, 100, " %") + (begins ? " of the images/s of " + row.baseline : "")
                   : in_words(row.more, 1e3, " ms") + (begins ? " a step" : "")) +
            ranks;
    begins = false;
  }
  return wrapped(text + "." + (timed ? "" : " " + std::string(kAskForAStep))) + "\n";
}

struct ShownColumn {
  TextTable::Column column;
  std::string words;  // what it is, for below the table
  std::function<std::string(const CostRow&)>
      cell;  // "" where a row has none; a column without any is left out
};

std::vector<ShownColumn> shown_columns() {
  const auto of_timed = [](const auto& cell) {
    return [cell](const CostRow& row) { return row.profile.is_timed() ? cell(row) : std::string(); };
  };
  const auto of_untimed = [](const auto& cell) {
    return [cell](const CostRow& row) {
      return row.profile.is_timed() || !row.is_compared() ? std::string() : cell(row);
    };
  };
  std::vector<ShownColumn> columns{
      {{"model"}, "", [](const CostRow& row) { return row.profile.model; }},
      {{"strategy"}, "", [](const CostRow& row) { return row.profile.strategy; }},
      {{"exchange"}, "", [](const CostRow& row) { return row.profile.exchange; }},
      {{"ranks", true}, "", [](const CostRow& row) { return std::to_string(row.ranks); }},
      {{"images\n/rank", true}, "", [](const CostRow& row) { return significant(row.profile.images, 4); }},
      {{"step ms"}, "step: the mean of one, waits included.", of_timed([](const CostRow& row) {
         return interval(row.prediction.step(), 1e3, 3);
       })},
      {{"images/s"}, "", of_timed([](const CostRow& row) {
         const Estimate step = row.prediction.step();
         const double images = row.profile.images * row.ranks;
         return interval({images / step.high, images / step.mid, images / step.low}, 1, 3);
       })},
      {{"% of baseline"},
       "baseline: the first strategy that exchanges gradients alone.",
       of_timed(
           [](const CostRow& row) { return row.relative.mid > 0 ? interval(row.relative, 100, 3) : "-"; })},
      {{"waits ms"},
       "waits: for statistics, for gradients that backward does not hide, and for the slowest rank.",
       of_timed([](const CostRow& row) { return interval(row.prediction.exposed(), 1e3, 3); })},
      {{"ms more"},
       "more: than a step of the first strategy that exchanges gradients alone, the baseline.",
       of_untimed([](const CostRow& row) { return interval(row.more, 1e3, 3); })}};
  for (const double step_ms : kUsualStepsMs) {
    columns.push_back(
        {{"% kept of\n" + significant(step_ms, 3) + " ms", true},
         step_ms > kUsualStepsMs[0] ? "" : "kept: of the images/s of a baseline whose step takes so long.",
         of_untimed([step_ms](const CostRow& row) { return significant(100 * kept(row, step_ms), 3); })});
  }
  columns.push_back({{"memory\nMiB/rank", true}, "memory: the peak of a rank.", [](const CostRow& row) {
                       const double bytes = row.profile.peak_memory_bytes;
                       return bytes > 0 ? fixed(bytes / (1 << 20), 0) : "";
                     }});
  columns.push_back({{"measured ms", true}, "measured: the step in the probe.", [](const CostRow& row) {
                       return row.measured ? significant(*row.measured * 1e3, 3) : "";
                     }});
  return columns;
}

}  // namespace

void compare_with_baseline(std::vector<CostRow>& rows) {
  for (CostRow& row : rows) {
    const auto baseline = std::ranges::find_if(rows, [&](const CostRow& other) {
      return other.ranks == row.ranks && other.profile.model == row.profile.model &&
             other.profile.refused.empty() && other.profile.exchange == row.profile.exchange &&
             other.profile.images == row.profile.images && !other.profile.exchanges_statistics();
    });
    if (baseline == rows.end() || !row.profile.refused.empty()) continue;
    // What is uncertain is what this row takes more than the baseline: the rest is slow or fast for both.
    const StepPrediction &own = row.prediction, &base = baseline->prediction;
    const double shared = base.step().mid;
    const auto share = [&](double Estimate::* end) {
      return shared / (own.own.mid + own.gradients.mid + own.statistics.*end + base.stragglers.mid +
                       own.stragglers.*end - base.stragglers.*end);
    };
    const double mid = share(&Estimate::mid);  // the baseline's ends may be the farther ones
    const auto [low, high] = std::minmax({share(&Estimate::high), mid, share(&Estimate::low)});
    row.relative = {low, mid, high};
    row.baseline = baseline->profile.strategy;
    row.more = {shared / high - shared, shared / mid - shared, shared / low - shared};
  }
}

std::string interval(const Estimate& estimate, double unit, int digits) {
  return significant(estimate.mid * unit, digits) + " (" + significant(estimate.low * unit, digits) + " - " +
         significant(estimate.high * unit, digits) + ")";
}

std::string text_of(const std::vector<CostRow>& rows, const std::vector<std::string>& notes) {
  std::string refusals;
  std::vector<const CostRow*> shown;
  for (const CostRow& row : rows)
    if (row.profile.refused.empty())
      shown.push_back(&row);
    else
      refusals += row.profile.strategy + " on " + std::to_string(row.ranks) +
                  " ranks: refused: " + row.profile.refused + "\n";
  TextTable table{{}, std::vector<std::vector<std::string>>(shown.size())};
  std::string legend = "In brackets: the interval.";
  for (const auto& [column, words, cell] : shown_columns()) {
    const auto cells = mapped(shown, [&](const CostRow* row) { return cell(*row); });
    if (std::ranges::all_of(cells, &std::string::empty)) continue;
    table.columns.push_back(column);
    legend += (words.empty() ? "" : " ") + words;
    for (size_t i = 0; i < cells.size(); ++i) table.rows[i].push_back(cells[i]);
  }
  std::string text = answer_of(rows) + table.text() + refusals + "\n" + wrapped(legend);
  for (const std::string& note : notes) text += wrapped(note);
  return text;
}

Json json_of(const Estimate& estimate) {
  return {{"low", estimate.low}, {"mid", estimate.mid}, {"high", estimate.high}};
}

Json json_of(const std::vector<CostRow>& rows, const Fabric& fabric, const std::vector<std::string>& notes) {
  Json list = Json::array();
  for (const CostRow& row : rows) {
    Json json{{"run", row.profile.run},
              {"model", row.profile.model},
              {"strategy", row.profile.strategy},
              {"exchange", row.profile.exchange},
              {"ranks", row.ranks},
              {"images_per_rank", row.profile.images}};
    if (!row.profile.refused.empty()) {
      json["refused"] = row.profile.refused;
    } else {
      const bool timed = row.profile.is_timed();
      const auto of_timed = [&](const Estimate& estimate) { return timed ? json_of(estimate) : Json(); };
      json["step_s"] = of_timed(row.prediction.step());
      json["own_s"] = of_timed(row.prediction.own);
      json["statistics_s"] = json_of(row.prediction.statistics);
      json["gradients_s"] = of_timed(row.prediction.gradients);
      json["stragglers_s"] = json_of(row.prediction.stragglers);
      json["relative_images_per_s"] = of_timed(row.relative);
      json["more_s"] = json_of(row.more);
      const double bytes = row.profile.peak_memory_bytes;
      json["peak_memory_bytes"] = bytes > 0 ? Json(bytes) : Json();
      json["measured_step_s"] = or_null(row.measured);
    }
    list.push_back(std::move(json));
  }
  return {{"fabric", fabric.name()}, {"notes", notes}, {"rows", list}};
}

}  // namespace bnlab
