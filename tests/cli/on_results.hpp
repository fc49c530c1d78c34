// The program called on a results folder of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/cli/called.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab::test {

class OnResults : public ::testing::Test {
 protected:
  Answer call_with_results(std::vector<std::string> words) {
    words.insert(words.end(), {"--results", scratch_ / "results"});
    return call(words);
  }
  Scratch scratch_;
};

}  // namespace bnlab::test
