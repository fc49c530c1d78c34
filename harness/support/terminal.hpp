// What the program prints. Names and texts that others wrote can do nothing to a terminal, whoever prints
// them: control characters are written as printable.hpp writes them, but for those of the program itself.
#pragma once

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>
#include <utility>

#include "harness/support/printable.hpp"

namespace bnlab {

// Stands before a stream's own buffer while it lives. Several threads may print at once.
class PrintableOutput : public std::streambuf {
 public:
  explicit PrintableOutput(std::ostream& out) : out_(out), own_(out.rdbuf(this)) {}
  ~PrintableOutput() override {
    own_->sputn(held_.data(), static_cast<std::streamsize>(held_.size()));
    out_.rdbuf(own_);
  }
  PrintableOutput(const PrintableOutput&) = delete;
  PrintableOutput& operator=(const PrintableOutput&) = delete;

  std::streambuf* own() const { return own_; }

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const std::lock_guard lock(mutex_);
    std::string all = std::exchange(held_, "") + std::string(text, static_cast<size_t>(size));
    if (all.ends_with('\xc2')) {  // what follows says whether it begins a control character
      all.pop_back();
      held_ = "\xc2";
    }
    const std::string shown = printable(all);
    const auto length = static_cast<std::streamsize>(shown.size());
    return own_->sputn(shown.data(), length) == length ? size : 0;
  }
  int_type overflow(int_type c) override {
    const char one = traits_type::to_char_type(c);
    return xsputn(&one, 1) == 1 ? c : traits_type::eof();
  }
  int sync() override {
    const std::lock_guard lock(mutex_);
    return own_->pubsync();
  }

 private:
  std::ostream& out_;
  std::streambuf* own_;
  std::string held_;
  std::mutex mutex_;
};

// Whether what goes to a descriptor can be drawn over.
inline bool draws_on_terminal(int descriptor) {
  const char* term = std::getenv("TERM");
  return isatty(descriptor) != 0 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

inline size_t terminal_columns(int descriptor, size_t where_unknown) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : where_unknown;
}

// A control sequence of the program's own, such as "\033[2J".
struct Control {
  std::string_view sequence;
};

inline std::ostream& operator<<(std::ostream& out, Control control) {
  const auto* printable = dynamic_cast<const PrintableOutput*>(out.rdbuf());
  std::streambuf* own = printable == nullptr ? out.rdbuf() : printable->own();
  own->sputn(control.sequence.data(), static_cast<std::streamsize>(control.sequence.size()));
  return out;
}

}  // namespace bnlab
