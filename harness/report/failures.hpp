// Why runs failed: their outcomes, grouped by what was said.
#pragma once

#include <string>
#include <vector>

#include "harness/store/record.hpp"

namespace bnlab {

// Runs that failed alike.
struct Failure {
  Status status = Status::error;
  std::string message;  // the first line of the outcome's message; its signal where there is none
  int runs = 0;
  std::string run_id;  // of one of them
  std::string folder;  // of the same, with its logs
};

// Counts a failed run among those that failed alike.
void add_failure(const Record& record, std::vector<Failure>& failures);

// The commonest first, one line each: "3 error: no such file (such as sync-8x2-seed0-1f3a9c2b4d5e)".
std::vector<std::string> failure_lines(std::vector<Failure> failures);
Json failures_json(const std::vector<Failure>& failures);

}  // namespace bnlab
