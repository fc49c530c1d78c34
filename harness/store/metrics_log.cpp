#include "harness/store/metrics_log.hpp"

#include <sstream>

#include "harness/error.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/store/schema.hpp"

namespace bnlab {
namespace {

const Json& metrics_schema() {
  static const Json schema = Json::parse(R"({"type": "object", "properties": {
    "kind": {"type": "string"}, "time_s": {"type": "number"}, "step": {"type": "integer", "minimum": 0},
    "epoch": {"type": ["number", "null"]}, "loss": {"type": ["number", "null"]}, "split": {"type": "string"},
    "population": {"type": "string"}, "metrics": {"type": "object"}}})");
  return schema;
}

}  // namespace

std::string read_metrics(const std::filesystem::path& file, const std::function<void(const Json&)>& use) {
  constexpr size_t kShown = 60;
  if (!std::filesystem::exists(file)) return "";
  std::string damaged;
  try {
    std::istringstream lines(read_text(file));
    size_t number = 0;
    for (std::string text; std::getline(lines, text);) {
      ++number;
      const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (misfits(line, metrics_schema(), Keys::any).empty()) {
        use(line);
      } else if (!lines.eof() && damaged.empty()) {
        damaged = file.string() + ":" + std::to_string(number) +
                  ": expected a JSON object as training writes it, got " + text.substr(0, kShown);
      }
    }
  } catch (const Error& error) {
    damaged = error.what();
  }
  return damaged;
}

}  // namespace bnlab
