// A report as JSON, complete: whoever draws figures from it computes nothing.
#include <algorithm>
#include <cmath>

#include "harness/report/report.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}
Json number(const std::optional<double>& value) {
  return value ? number(*value) : Json(nullptr);
}

Json interval_json(const Interval& interval, const SeedValues& values) {
  const auto seed_json = [](const auto& entry) {
    return Json{{"seed", entry.first}, {"value", number(entry.second)}};
  };
  return {{"n", interval.n},
          {"mean", number(interval.mean)},
          {"half_width", number(interval.half_width)},
          {"seeds", mapped(values, seed_json)}};
}

Json interval_json(const SeedValues& values) {
  return interval_json(over_seeds(values), values);
}

// The keys that a cell and its rows share.
Json scores_json(const Scores& scores) {
  Json outcomes = Json::array(), values = Json::object();
  for (const auto& [seed, outcome] : scores.outcomes)
    outcomes.push_back({{"seed", seed}, {"outcome", outcome ? name(*outcome) : kMissing}});
  for (const auto& [population, by_seed] : scores.values) values[population] = interval_json(by_seed);
  return {{"asked", scores.outcomes.size()},
          {"ok", scores.count(Status::ok)},
          {"missing", scores.count(std::nullopt)},
          {"failures", Json(scores.failures())},  // outcome -> runs
          {"outcomes", outcomes},
          {"stale_seeds", Json(scores.stale)},
          {"stopped_early_seeds", Json(scores.stopped)},
          {"values", values}};  // the headline metric, by population
}

Json row_json(const ReportRow& row) {
  Json json = {{"placement", or_null(row.placement)},
               {"ranks", row.ranks},
               {"device", or_null(row.device)},
               {"emulated", row.emulated},
               {"ran_beside_others", row.ran_beside_others}};
  json.update(scores_json(row.scores));
  for (const char* first : {kImagesPerS, "emulated_images_per_s"}) json[first] = nullptr;  // their places
  json[kRelativeImagesPerS] = number(row.relative_rate);
  json["beside"] = or_null(row.timed_against);
  for (const Measure& measure : measures()) {
    if (!measure.is_of_rows()) continue;
    const SeedValues& values = row.of(measure.key);
    const bool is_null = values.empty() && measure.counts_if != CountsIf::ok;
    json[measure.key] = is_null ? Json(nullptr) : interval_json(values);
  }
  json["machines"] = Json(row.machines);
  return json;
}

Json curves_json(const Curves& curves) {
  Json points = Json::array(), failed = Json::array();
  for (const CurvePoint& point : curves.points) {
    const auto [low, high] = std::ranges::minmax_element(point.values);
    points.push_back({{"step", point.step},
                      {"n", point.values.size()},
                      {"mean", number(mean(point.values))},
                      {"low", number(*low)},
                      {"high", number(*high)}});
  }
  for (const FailedCurve& curve : curves.failed) {
    Json steps = Json::array();
    for (const auto& [step, value] : curve.values)
      steps.push_back({{"step", step}, {"value", number(value)}});
    failed.push_back({{"seed", curve.seed}, {"outcome", name(curve.status)}, {"points", steps}});
  }
  return {{"points", points}, {"failed", failed}};
}

Json metrics_json(const FinalMetrics& all) {
  Json json = Json::object();
  for (const auto& [population, metrics] : all)
    for (const auto& [metric, values] : metrics) json[population][metric] = interval_json(values);
  return json;
}

Json site_json(const SiteNumbers& site) {
  Json json = {{"name", site.name}};
  for (const auto& [key, values] : site.numbers) json[key] = interval_json(values);
  return json;
}

Json cell_json(const ReportCell& cell, const ExperimentReport& report) {
  Json named = Json::object(), curves = Json::object();
  for (size_t i = 0; i < cell.cell.size(); ++i) named[report.columns[i]] = cell.cell[i];
  for (const auto& [quantity, all] : cell.curves) curves[quantity] = curves_json(all);
  Json json = {{"cell", named},
               {"strategy", cell.strategy},
               {"group", cell.group},
               {"conditions", Json(cell.conditions)},
               {"towers", cell.towers},
               {"batch_per_tower", cell.batch_per_tower},
               {"populations", cell.populations},
               {"evaluated", Json(cell.evaluated)}};
  json.update(scores_json(cell.scores));  // each seed once, over all placements
  json["metrics"] = metrics_json(cell.metrics);
  json["curves"] = curves;
  json["sites"] = mapped(cell.sites, site_json);
  json["rows"] = mapped(cell.rows, row_json);  // one per placement
  return json;
}

Json contrast_json(const ContrastResult& result) {
  return {{"declared", result.contrast.as_written},
          {"sides", side_names(result.contrast)},
          {"strategies", result.strategies},
          {"at", result.group},
          {"difference", interval_json(result.differences)},
          {"stale_seeds", Json(result.stale)},
          {"stopped_early_seeds", Json(result.stopped)},
          {"failed_seeds", Json(result.failed)},
          {"p", number(result.p)},
          {"p_holm", number(result.holm_p)},
          {"p_sign_flip", number(result.sign_flip_p)},
          {"p_equal", number(result.equal_p)},
          {"declared_at", result.declared ? Json(result.declared->at) : Json(nullptr)},
          {"declared_after_runs", result.declared ? Json(result.declared->after_runs) : Json(nullptr)},
          {"verdict", verdict_name(result)},
          {"warning", or_null(result.warning)}};
}

Json published_json(const PublishedResult& result) {
  return {{"metric", result.published.metric},
          {"from", result.published.from},
          {"to", result.published.to},
          {"source", result.published.source},
          {"cell", result.cell},
          {"population", result.published.population},
          {"here", interval_json(result.here, result.values)}};
}

Json tuning_json(const Tuning& tuning) {
  const auto group_json = [](const TunedGroup& group) {
    const auto tried = mapped(group.candidates, [](const Candidate& candidate) {
      const auto scores = mapped(candidate.scores, [](const auto& score) { return number(score); });
      Json json{{"setting", candidate.setting}, {"mean", number(candidate.mean())}, {"scores", scores}};
      if (candidate.dropped_after) json["dropped_after_steps"] = *candidate.dropped_after;
      return json;
    });
    return Json{{"group", group.name},
                {"chosen", group.chosen().setting},
                {"at_edge_of_grid", group.at_edge},
                {"tried", tried},
                {"best_mean_at_each_length", group.best_means}};
  };
  return {{"rule", tuning.sentence()},
          {"metric", tuning.asked.metric},
          {"population", tuning.asked.population},
          {"seeds", tuning.asked.seeds},
          {"length", tuning.length_json()},
          {"groups", mapped(tuning.groups, group_json)}};
}

}  // namespace

Json report_json(const ExperimentReport& report) {
  const auto cells = mapped(report.cells, [&](const ReportCell& cell) { return cell_json(cell, report); });
  std::vector<std::string> learned = report.learned;
  if (!report.leaders.empty()) learned.insert(learned.begin(), report.leaders);
  return {{"experiment", report.experiment},
          {"question", report.question},
          {"claim", report.claim},
          {"headline", report.headline},
          {"samples", report.samples},
          {"columns", report.columns},
          {"populations", report.populations},
          {"baseline", or_null(report.baseline)},
          {"fewest_seeds_for_a_verdict", kFewestSeeds},
          {"runs",
           {{"asked", report.runs.asked},
            {"finished", report.runs.finished},
            {"ok", report.runs.ok()},
            {"failed", report.runs.failed},
            {"stale", report.runs.stale},
            {"stopped_early", Json(report.runs.stopped_early)},
            {"confirmed", report.runs.confirmed}}},
          {"failures", failures_json(report.runs.failures)},
          {"cells", cells},
          {"contrasts", mapped(report.contrasts, contrast_json)},
          {"declared", report.declared},
          {"declared_in_short", or_null(report.declared_in_short)},
          {"published", mapped(report.published, published_json)},
          {"tuning", report.tuning ? tuning_json(*report.tuning) : Json(nullptr)},
          {"learned", learned}};
}

}  // namespace bnlab
