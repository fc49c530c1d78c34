#include "harness/report/failures.hpp"

#include <algorithm>

#include "harness/mapped.hpp"
#include "harness/printable.hpp"

namespace bnlab {
namespace {

std::string recorded_text(const Record& record, const std::string& path) {
  const Json& value = record.at(path);
  return value.is_string() ? value.get<std::string>() : "";
}

std::string reason_of(const Record& record) {
  const std::string message = recorded_text(record, "outcome.message");
  if (!message.empty()) return printable(message.substr(0, message.find('\n')));
  const std::string signal = recorded_text(record, "outcome.signal");
  return signal.empty() ? "no reason is recorded" : "ended by " + signal;
}

}  // namespace

void add_failure(const Record& record, std::vector<Failure>& failures) {
  const std::string reason = reason_of(record);
  const auto alike = std::ranges::find_if(failures, [&](const Failure& known) {
    return known.status == record.status() && known.message == reason;
  });
  if (alike != failures.end()) {
    ++alike->runs;
    return;
  }
  failures.push_back(
      {record.status(), reason, 1, record.run_id(), record.file().parent_path().generic_string()});
}

std::vector<std::string> failure_lines(std::vector<Failure> failures) {
  std::ranges::stable_sort(failures, std::ranges::greater(), &Failure::runs);
  return mapped(failures, [](const Failure& failure) {
    return std::to_string(failure.runs) + " " + name(failure.status) + ": " + failure.message + " (" +
           (failure.runs > 1 ? "such as " : "") + failure.run_id + ")";
  });
}

Json failures_json(const std::vector<Failure>& failures) {
  return mapped(failures, [](const Failure& failure) {
    return Json{{"outcome", name(failure.status)},
                {"message", failure.message},
                {"runs", failure.runs},
                {"run_id", failure.run_id},
                {"folder", failure.folder}};
  });
}

}  // namespace bnlab
