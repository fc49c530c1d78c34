// Damaged variants of what a reader takes, the same ones for the same seed, and what must hold for each: the
// reader takes it or throws an Error that names the file, within 5 s and a gigabyte. BNLAB_FUZZ_INPUTS: how
// many for each test (300).
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "harness/support/error.hpp"
#include "harness/support/random.hpp"

namespace bnlab::test {

class Mutations {
 public:
  explicit Mutations(uint64_t seed) : stream_(seed, "mutations") {}

  // One to four changes: bits, a cut, a part overwritten, repeated, moved or taken out, an extreme number.
  std::string mutated(const std::string& text) {
    std::string changed = text;
    for (int64_t changes = 1 + below(4); changes > 0; --changes) change(changed);
    return changed;
  }

 private:
  int64_t below(size_t limit) { return stream_.below(static_cast<int64_t>(limit)); }

  void change(std::string& text) {
    static const std::array<std::string, 12> extremes = {"-1",
                                                         "0",
                                                         "1e308",
                                                         "-1e-308",
                                                         "nan",
                                                         "18446744073709551615",
                                                         "9223372036854775807",
                                                         "2147483648",
                                                         "null",
                                                         "{",
                                                         "\x1b[2J",
                                                         std::string("\xff\xff\xff\xff\0\0\0\x80", 8)};
    const auto begin = static_cast<size_t>(below(text.size() + 1));
    const auto count = std::min(text.size() - begin, static_cast<size_t>(1 + below(40)));
    const std::string part = text.substr(begin, count);
    const std::string& extreme = extremes[static_cast<size_t>(below(extremes.size()))];
    const size_t digit = text.find_first_of("0123456789", begin);
    switch (below(8)) {
      case 0:
        if (count > 0) text[begin] = static_cast<char>(text[begin] ^ (1 << below(8)));
        break;
      case 1:
        text.resize(begin);
        break;
      case 2:
        text.erase(begin, count);
        break;
      case 3:
        text.insert(static_cast<size_t>(below(text.size() + 1)), part);
        break;
      case 4:
        for (int64_t copies = below(100); copies > 0; --copies) text.insert(begin, part);
        break;
      case 5:
        for (size_t i = begin; i < begin + count; ++i) text[i] = static_cast<char>(below(256));
        break;
      case 6:
        text.replace(begin, std::min(count, extreme.size()), extreme);
        break;
      default:  // a whole number, in text
        if (digit != std::string::npos)
          text.replace(digit, std::min(text.size(), text.find_first_not_of("0123456789", digit)) - digit,
                       extreme);
    }
  }

  Stream stream_;
};

// `read` takes a damaged text, and may throw an Error whose message has `name`.
template <class Read>
void expect_named_errors(const std::vector<std::string>& texts, const std::string& name, const Read& read) {
  const auto peak_kib = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const char* asked = std::getenv("BNLAB_FUZZ_INPUTS");
  const int64_t inputs = asked == nullptr ? 300 : std::atoll(asked);
  Mutations mutations(1);
  for (int64_t i = 0; i < inputs; ++i) {
    const std::string text = mutations.mutated(texts[static_cast<size_t>(i) % texts.size()]);
    SCOPED_TRACE("input " + std::to_string(i));
    const auto peak = peak_kib();
    const auto start = std::chrono::steady_clock::now();
    try {
      read(text);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "an error of no kind: " << error.what();
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_LT(peak_kib() - peak, 1 << 20);
  }
}

}  // namespace bnlab::test
