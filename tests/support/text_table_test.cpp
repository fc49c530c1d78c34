// How numbers are written in tables.
#include "harness/support/text_table.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace bnlab {
namespace {

TEST(Fixed, RoundsToDecimalsAndKnowsNoNegativeZero) {
  EXPECT_EQ(fixed(0.7116, 3), "0.712");
  EXPECT_EQ(fixed(-0.0005, 3), "-0.001");
  EXPECT_EQ(fixed(-0.0004, 3), "0.000");
  EXPECT_EQ(fixed(-0.04, 1), "0.0");
  EXPECT_EQ(fixed(-10, 0), "-10");
  EXPECT_EQ(fixed(-0.2, 0), "0");
  EXPECT_EQ(fixed(std::numeric_limits<double>::quiet_NaN(), 3), "-");
}

}  // namespace
}  // namespace bnlab
