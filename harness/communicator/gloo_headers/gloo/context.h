// A Gloo context, of which c10d's header calls this one function. LibTorch makes and destroys all contexts,
// so that what they consist of need not be known here.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  Context() = delete;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
