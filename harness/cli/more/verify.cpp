// bnlab verify: every strategy against the float64 reference, on this machine's devices.
#include "harness/verify/verify.hpp"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <iostream>

#include "harness/cli/more/more.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/terminal.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

struct Request {
  VerifyRequest verify;
  std::vector<std::string> names;  // the same as --strategy
  bool json = false;

  void describe(Arguments& option) {
    option("[NAME]", names, "Strategies to check. Default: all").by_commas();
    option("--strategy NAME,...", verify.strategies, "The same as NAME").by_commas().greedy();
    option("--ranks R", verify.ranks, "Check placements on up to this many ranks").from(1, 64);
    describe_device(option, verify.device, ". Default: both where there is a GPU");
    option("--json", json, "Print JSON");
  }
};

constexpr const char* kDtypes[] = {"float64", "float32", "bfloat16", "float16"};

std::string variant_text(const VerifyRow& row) {
  std::string text = row.strategy;
  for (const auto& [key, value] : row.options.items()) {
    const Json& name = value.is_object() && value.contains("name") ? value.at("name") : value;
    text += " " + key + "=" + (name.is_string() ? name.get<std::string>() : name.dump());
  }
  return text;
}

std::string verdict(const VerifyReport& report) {
  size_t failed = 0, skipped = 0;
  int64_t cases = 0;
  for (const VerifyRow& row : report.rows) {
    failed += row.passed() ? 0 : 1;
    skipped += row.skipped.empty() ? 0 : 1;
    cases += row.cases;
  }
  const std::string all = std::to_string(report.rows.size() - skipped) + " variants of strategies";
  return (failed > 0
              ? std::to_string(failed) + " of " + all + " FAILED."
              : "All " + all + " agree with the float64 reference in " + std::to_string(cases) + " cases.") +
         (skipped == 0 ? "" : " " + std::to_string(skipped) + " SKIPPED.");
}

void print(const VerifyReport& report) {
  TextTable table;
  table.columns = {{"strategy"}, {"cases", true}, {"refused", true}};
  for (const char* dtype : kDtypes) table.columns.push_back({dtype, true});
  table.columns.push_back({"verdict"});
  for (const VerifyRow& row : report.rows) {
    std::vector<std::string> cells{variant_text(row), std::to_string(row.cases), std::to_string(row.refused)};
    for (const char* dtype : kDtypes)
      cells.push_back(row.worst.count(dtype) == 0 ? "-" : significant(row.worst.at(dtype), 2));
    cells.push_back(!row.skipped.empty() ? "SKIPPED" : row.passed() ? "ok" : "FAILED");
    table.rows.push_back(cells);
  }
  std::cout
      << "Largest error per dtype, relative to the largest value of its tensor and divided by what the case\n"
         "magnifies rounding by: |mean|/std far from zero, 1 + mean^2/var where a form cancels, else 1.\n"
         "refused: cases that are to be refused, and were.\n\n"
      << table.text() << "\n";
  for (const VerifyRow& row : report.rows)
    if (!row.passed() || !row.skipped.empty())
      std::cout << variant_text(row) << "\n    " << row.failure << row.skipped << "\n";
  std::cout << verdict(report) << "\n";
}

Json row_json(const VerifyRow& row) {
  Json worst = Json::object();
  for (const char* dtype : kDtypes)
    worst[dtype] = row.worst.count(dtype) == 0 ? Json() : Json(row.worst.at(dtype));
  return {{"strategy", row.strategy},        {"options", row.options},         {"cases", row.cases},
          {"refused", row.refused},          {"largest_error", worst},         {"passed", row.passed()},
          {"failure", or_null(row.failure)}, {"skipped", or_null(row.skipped)}};
}

Json as_json(const VerifyReport& report) {
  const auto place_json = [](const VerifyPlacement& place) {
    return Json{{"device", place.device}, {"ranks", place.ranks}};
  };
  return {{"passed", report.passed()},
          {"placements", mapped(report.placements, place_json)},
          {"notes", report.notes},
          {"variants", mapped(report.rows, row_json)}};
}

// The strategy that is being verified. Its code may end the whole program, by a division by zero for one.
std::array<char, 128> in_turn{};

void name_it_and_end(int signal) {
  const std::array<const char*, 7> words = {"\nbnlab: the strategy ",
                                            in_turn.data(),
                                            " ended the program by SIG",
                                            sigabbrev_np(signal),
                                            "; gdb --args bnlab verify --strategy ",
                                            in_turn.data(),
                                            " shows where\n"};
  for (const char* part : words) [[maybe_unused]]
    const ssize_t written = ::write(STDERR_FILENO, part, std::strlen(part));
  ::raise(signal);  // which takes effect on return
}

// From now on these signals end the program as before, but not without a word.
void watch_for_crashes() {
  struct sigaction action{};
  action.sa_handler = name_it_and_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int fatal : {SIGFPE, SIGSEGV, SIGBUS, SIGILL, SIGABRT}) ::sigaction(fatal, &action, nullptr);
}

void show_progress(const std::string& strategy, size_t done, size_t all) {
  std::cerr << Control{"\r\033[K"} << "verify: " << strategy << " (" << done + 1 << " of " << all << ")"
            << std::flush;
}

int verify_and_print(const Request& asked) {
  VerifyRequest request = asked.verify;
  request.strategies.insert(request.strategies.end(), asked.names.begin(), asked.names.end());
  const bool terminal = isatty(STDERR_FILENO) == 1;
  request.progress = [terminal](const std::string& strategy, size_t done, size_t all) {
    in_turn.fill('\0');
    strategy.copy(in_turn.data(), in_turn.size() - 1);
    if (terminal) show_progress(strategy, done, all);
  };
  watch_for_crashes();
  const VerifyReport report = verify(request);
  std::cerr << Control{terminal ? "\r\033[K" : ""};
  for (const std::string& note : report.notes) std::cerr << "verify: " << note << "\n";
  if (asked.json)
    std::cout << as_json(report).dump(2) << "\n";
  else
    print(report);
  return report.passed() ? exit_code::kOk : exit_code::kFailed;
}

const Command verify_command(more::named("verify"),
                             "  bnlab verify\n"
                             "  bnlab verify --ranks 4         also with the towers on 2 and 4 ranks\n"
                             "  bnlab verify NAME,NAME --json  some of them (bnlab list strategies)",
                             verify_and_print);

}  // namespace
}  // namespace bnlab
