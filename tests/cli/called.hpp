// The program, called with words as a shell would.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "harness/cli/program.hpp"

namespace bnlab::test {

struct Answer {
  int code = 0;
  std::string out, err;
};

inline Answer call(const std::vector<std::string>& words) {
  std::vector<const char*> argv{"bnlab"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Answer answer;
  answer.code = run_program(static_cast<int>(argv.size()), argv.data());
  answer.out = testing::internal::GetCapturedStdout();
  answer.err = testing::internal::GetCapturedStderr();
  return answer;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace bnlab::test
