// What went wrong inside LibTorch, as one line.
#pragma once

#include <c10/util/Exception.h>

#include <string>

namespace bnlab {

// The first line of a message, without the call stack that LibTorch appends.
inline std::string reason_of(const std::exception& cause) {
  const auto* error = dynamic_cast<const c10::Error*>(&cause);
  const std::string text = error != nullptr ? error->what_without_backtrace() : cause.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace bnlab
