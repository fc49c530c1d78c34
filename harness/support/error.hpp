// The one exception type. The message says what was expected, what came and where.
#pragma once

#include <stdexcept>
#include <string>

namespace bnlab {

// `what()` is one complete message for a person. By `kind()` a rank that ends with the error reports what
// became of its run (run_rank), and the program chooses its exit code.
class Error : public std::runtime_error {
 public:
  enum class Kind { usage, spec, environment, refused, data, communication };
  Error(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

}  // namespace bnlab
