#include "harness/store/metrics_log.hpp"

#include <sstream>

#include "harness/store/ledger.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/store/schema.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

const Json& metrics_schema() {
  static const Json schema = Json::parse(R"({"type": "object", "properties": {
    "kind": {"type": "string"}, "time_s": {"type": "number"}, "step": {"type": "integer", "minimum": 0},
    "epoch": {"type": ["number", "null"]}, "loss": {"type": ["number", "null"]}, "split": {"type": "string"},
    "population": {"type": "string"}, "metrics": {"type": "object"}}})");
  return schema;
}

bool fits(const Json& line) {
  return misfits(line, metrics_schema(), Keys::any).empty();
}

std::string misfit(const std::string& place, const std::string& text) {
  constexpr size_t kShown = 60;
  return place + ": expected a JSON object as training writes it, got " + text.substr(0, kShown);
}

}  // namespace

std::string read_metrics(const std::filesystem::path& run_folder,
                         const std::function<void(const Json&)>& use) {
  std::string damaged;
  const std::filesystem::path file = run_folder / kMetricsFile;
  if (!std::filesystem::exists(file)) {
    if (const auto kept = kept_run(run_folder)) {
      for (const Json& line : kept->log)
        if (fits(line))
          use(line);
        else if (damaged.empty())
          damaged = misfit(kept->line.string() + ": log", line.dump());
    }
    return damaged;
  }
  try {
    std::istringstream lines(read_text(file));
    size_t number = 0;
    for (std::string text; std::getline(lines, text);) {
      ++number;
      const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (fits(line))
        use(line);
      else if (!lines.eof() && damaged.empty())
        damaged = misfit(file.string() + ":" + std::to_string(number), text);
    }
  } catch (const Error& error) {
    damaged = error.what();
  }
  return damaged;
}

}  // namespace bnlab
