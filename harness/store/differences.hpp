// In what two JSON values differ, in words.
#pragma once

#include <string>

#include "harness/support/json.hpp"

namespace bnlab {

// A list in words that names its first ten items and counts the others: "a, b, 3 more".
class TruncatedList {
 public:
  explicit TruncatedList(std::string separator) : separator_(std::move(separator)) {}
  void add(const std::string& item);
  std::string text() const;

 private:
  std::string separator_, text_;
  int count_ = 0;
};

// "optimizer.lr is 0.1 and 0.2" of two objects; empty where they are the same, to the last digit. `in_a` and
// `in_b` stand behind the values: with " there" and " here" it says "optimizer.lr is 0.1 there and 0.2 here".
std::string differences(const Json& a, const Json& b, const std::string& in_a = "",
                        const std::string& in_b = "");

}  // namespace bnlab
