#include "harness/report/cell_results.hpp"

#include <algorithm>

#include "harness/store/metrics_log.hpp"

namespace bnlab {
namespace {

using Curve = std::map<int64_t, double>;         // step -> value
using RunCurves = std::map<std::string, Curve>;  // by quantity

constexpr const char* kLoss = "train_loss";
constexpr const char* kGradient = "gradient_norm";

// "mean_iou", and under other statistics "precise.mean_iou"; on the validation split "validation.mean_iou"
// and "validation.precise.mean_iou". `evaluation`: a line of the log or an entry of the history.
std::string quantity_under(const std::string& population, const std::string& headline,
                           const Json& evaluation) {
  const std::string split =
      value_at(evaluation, "split").is_null() ? "" : evaluation.at("split").get<std::string>() + ".";
  return split + (population == "saved" ? headline : population + "." + headline);
}

void add(Curve& curve, const Json& line, const Json& value) {
  if (const Json& step = value_at(line, "step"); step.is_number() && value.is_number())
    curve[step.get<int64_t>()] = value.get<double>();
}

RunCurves from_history(const Record& record, const std::string& headline) {
  RunCurves curves;
  for (const Json& entry : record.at("result.history")) {
    add(curves[kLoss], entry, value_at(entry, "train_loss"));
    for (const auto& [population, value] : value_at(entry, headline).items())
      add(curves[quantity_under(population, headline, entry)], entry, value);
  }
  return curves;
}

void add_line(const Json& line, const std::string& headline, RunCurves& curves) {
  const Json& kind = value_at(line, "kind");
  if (kind == "train") {
    add(curves[kLoss], line, value_at(line, "loss"));
    add(curves[kGradient], line, value_at(line, "gradient_norm"));
  }
  if (kind == "eval") {
    const std::string population = line.value("population", "saved");
    add(curves[quantity_under(population, headline, line)], line, value_at(line, "metrics." + headline));
  }
}

RunCurves of_run(const Record& record, const std::string& headline, std::vector<std::string>& problems) {
  RunCurves curves;
  const std::string damaged =
      read_metrics(record.folder(), [&](const Json& line) { add_line(line, headline, curves); });
  if (!damaged.empty()) problems.push_back(damaged);
  return damaged.empty() && !curves.empty() ? curves : from_history(record, headline);
}

constexpr const char* kNumbers[] = {"values_per_image", "saved_mean_error", "saved_variance_error",
                                    "between_sets"};

// Of the site in this place, where the record has one of that name.
std::optional<double> number_of(const Record& record, size_t place, const std::string& site,
                                const char* key) {
  const Json& sites = record.at("result.sites");
  const bool there = sites.is_array() && place < sites.size() && sites[place].value("name", "") == site;
  const Json& number = there ? value_at(sites[place], key) : record.at("no such key");
  return number.is_number() ? std::optional(number.get<double>()) : std::nullopt;
}

}  // namespace

std::map<std::string, Curves> curves_of(const std::vector<const Record*>& records,
                                        const std::string& headline, std::vector<std::string>& problems) {
  std::map<std::string, Curves> all;
  std::map<std::string, std::map<int64_t, std::vector<double>>> by_step;
  for (const Record* record : records) {
    for (const auto& [quantity, curve] : of_run(*record, headline, problems)) {
      if (curve.empty()) continue;
      if (record->status() != Status::ok) {
        all[quantity].failed.push_back({record->seed(), record->status(), curve});
        continue;
      }
      for (const auto& [step, value] : curve) by_step[quantity][step].push_back(value);
    }
  }
  for (auto& [quantity, steps] : by_step)
    for (auto& [step, values] : steps) all[quantity].points.push_back({step, std::move(values)});
  return all;
}

FinalMetrics final_metrics_of(const std::vector<const Record*>& records) {
  FinalMetrics all;
  for (const Record* record : records) {
    if (record->status() != Status::ok) continue;
    for (const auto& [population, metrics] : record->at("result.final").items()) {
      const Json flat = metrics.flatten();
      for (const auto& [path, value] : flat.items())
        if (value.is_number())
          all[population][path.substr(1)].emplace_back(record->seed(), value.get<double>());
    }
  }
  return all;
}

std::vector<SiteNumbers> site_numbers(const std::vector<const Record*>& records) {
  std::vector<SiteNumbers> all;
  const auto first = std::ranges::find_if(
      records, [](const Record* record) { return record->at("result.sites").is_array(); });
  if (first == records.end()) return all;
  bool any = false;
  const Json& sites = (*first)->at("result.sites");
  for (size_t i = 0; i < sites.size(); ++i) {
    SiteNumbers site{sites[i].value("name", ""), {}};
    for (const char* key : kNumbers) {
      const SeedValues values =
          values_by_seed(records, [&](const Record& record) { return number_of(record, i, site.name, key); });
      if (!values.empty()) site.numbers[key] = values;
    }
    any = any || !site.numbers.empty();
    all.push_back(site);
  }
  return any ? all : std::vector<SiteNumbers>();
}

}  // namespace bnlab
