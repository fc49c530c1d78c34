// A report as CSV (RFC 4180): one row per run and placement, and one per run that is missing. Columns are
// named as the keys of a record, with what the matrix varies first. An empty field is a number that is not
// there.
#include <algorithm>

#include "harness/report/report.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

// The measures that have a column after those of the matrix, memory first; the data frames of scripts/python
// have them, too.
std::vector<Measure> column_measures() {
  std::vector<Measure> all = measures();
  std::erase_if(all, [](const Measure& measure) { return measure.column.empty(); });
  std::ranges::stable_partition(all, &Measure::largest_of_ranks);
  return all;
}

std::string field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string field(const Json& value) {
  return value.is_null() ? "" : field(value.is_string() ? value.get<std::string>() : value.dump());
}

std::string line_of_fields(const std::vector<std::string>& fields) {
  return joined(fields, ",") + "\n";
}

// "saved.mean_iou": the scalar metrics of the last evaluation, by population.
std::vector<std::string> final_metrics(const std::vector<Record>& records) {
  std::vector<std::string> names;
  for (const Record& record : records) {
    for (const auto& [population, metrics] : record.at("result.final").items()) {
      for (const auto& [metric, value] : metrics.items()) {
        const std::string name = population + "." + metric;
        if (value.is_primitive() && std::ranges::find(names, name) == names.end()) names.push_back(name);
      }
    }
  }
  return names;
}

std::string field(const Record& record, const Measure& measure) {
  if (!measure.largest_of_ranks) return field(record.at(measure.path[0]));
  const auto largest = number_of(record, measure);
  return largest ? std::to_string(static_cast<int64_t>(*largest)) : "";
}

// Behind the `fields` of the run.
std::string line_of(const Record& record, std::vector<std::string> fields,
                    const std::vector<std::string>& metrics, const std::vector<Measure>& columns) {
  fields.insert(fields.end(), {name(record.status()), field(record.at("outcome.message")),
                               field(Json(record.stale())), field(Json(record.throughput_counts()))});
  for (const std::string& metric : metrics) fields.push_back(field(record.at("result.final." + metric)));
  for (const Measure& measure : columns) fields.push_back(field(record, measure));
  return line_of_fields(fields);
}

}  // namespace

std::string report_csv(const Experiment& experiment, const std::vector<Record>& records) {
  const CellTable table = collect_cells(experiment, records);
  const std::vector<std::string> metrics = final_metrics(records);
  const std::vector<Measure> columns = column_measures();
  std::vector<std::string> titles = {"experiment", "run_id", "seed"};
  titles.insert(titles.end(), table.columns.begin(), table.columns.end());
  titles.insert(titles.end(), {"outcome", "message", "stale", "throughput_counts"});
  titles.insert(titles.end(), metrics.begin(), metrics.end());
  for (const Measure& measure : columns) titles.push_back(measure.column);
  std::string text = line_of_fields(mapped(titles, [](const std::string& title) { return field(title); }));
  for (const CellRecords& cell : table.cells) {
    for (const RunSpec* run : cell.runs) {
      std::vector<std::string> known = {field(experiment.name), field(run->id), std::to_string(run->seed)};
      for (const std::string& value : cell.cell) known.push_back(field(value));
      std::string lines;
      for (const auto& [placement, there] : cell.placements)
        for (const Record* record : there)
          if (record->run_id() == run->id) lines += line_of(*record, known, metrics, columns);
      known.push_back(kMissing);
      known.resize(titles.size());
      text += lines.empty() ? line_of_fields(known) : lines;
    }
  }
  return text;
}

}  // namespace bnlab
