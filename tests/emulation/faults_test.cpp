// The emulation judged: each known fault in the kernels (plant_faults.py) has to show.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>

#include "fault_names.hpp"
#include "tests/emulation/device.hpp"
#include "tests/emulation/fault.hpp"
#include "tests/emulation/problems.hpp"

namespace bnlab::kernels::emulated {
namespace {

// The small tables first, then one in `share` of the problems, in jumps from the last,
// because neighbours in the table are alike and the last are the largest.
std::string any_mismatch(size_t share) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    if (const std::string text = mismatch_of_coefficients(type); !text.empty()) return text;
    if (const std::string text = mismatch_of_pooled_coefficients(type); !text.empty()) return text;
    if (const std::string text = mismatch_of_many_towers(type); !text.empty()) return text;
    if (const std::string text = mismatch_of_sample_coefficients(type); !text.empty()) return text;
  }
  if (const std::string text = mismatch_of_moved_bytes(); !text.empty()) return text;
  if (const std::string text = mismatch_of_special_values(); !text.empty()) return text;
  if (const std::string text = mismatch_of_long_sums(); !text.empty()) return text;
  if (const std::string text = mismatch_of_far_rows(); !text.empty()) return text;
  if (const std::string text = mismatch_of_streams(); !text.empty()) return text;
  const std::vector<Problem> all = problems();
  emulation::set_stream(3 + emulation::fault);  // on which nobody has taken tickets
  const auto many =
      std::find_if(all.begin(), all.end(), [](const Problem& p) { return p.offsets.size() > 256; });
  if (const std::string text = mismatch_of_local_coefficients(*many); !text.empty()) return text;
  emulation::set_stream(0);
  for (size_t i = 0; i < all.size(); i += share) {
    const Problem& problem = all[all.size() - 1 - i * 37 % all.size()];
    if (const std::string text = mismatch(problem); !text.empty()) return problem.name() + ": " + text;
    if (i % (29 * share) != 0) continue;
    if (const std::string text = mismatch_of_response_and_squash(problem); !text.empty())
      return problem.name() + ": " + text;
    if (const std::string text = mismatch_of_local_coefficients(problem); !text.empty())
      return problem.name() + ": " + text;
  }
  return "";
}

// A fault may end the process, so that each has one of its own.
void judge(int fault) {
  emulation::fault = fault;
  std::string text;
  try {
    text = any_mismatch(1);
  } catch (const std::exception& e) {
    text = e.what();
  }
  std::fprintf(stderr, "%s\n", text.c_str());
  std::_Exit(text.empty() ? 0 : 1);
}

TEST(EmulatedFaults, NoneIsSwitchedOnByItself) {
  EXPECT_EQ(any_mismatch(17), "");
}

class EachFault : public testing::TestWithParam<size_t> {};

TEST_P(EachFault, IsCaught) {
  const int fault = static_cast<int>(GetParam()) + 1;
  EXPECT_EXIT(judge(fault), [](int status) { return status != 0; }, "") << kFaults[GetParam()];
}

INSTANTIATE_TEST_SUITE_P(Planted, EachFault, testing::Range(size_t{0}, std::size(kFaults)));

}  // namespace
}  // namespace bnlab::kernels::emulated
