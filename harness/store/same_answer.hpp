// Whether two records answer the same, to the last digit.
#pragma once

#include <string>

#include "harness/store/record.hpp"

namespace bnlab {

// What a run answers: all of its record that neither the code, the machine nor the moment decides.
Json answer_of(const Record& record);

// "optimizer.lr is 0.1 and 0.2", of two objects; empty where they are the same.
std::string differences(const Json& a, const Json& b);

// A list that does not grow without end.
class Named {
 public:
  explicit Named(std::string separator) : separator_(std::move(separator)) {}
  void add(const std::string& item);
  std::string text() const;

 private:
  std::string separator_, text_;
  int count_ = 0;
};

}  // namespace bnlab
