// The emulation judged: each known fault in the kernels (plant_faults.py) has to show.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include "fault_names.hpp"
#include "tests/emulation/device.hpp"
#include "tests/emulation/fault.hpp"
#include "tests/emulation/problems.hpp"

namespace bnlab::kernels::emulated {
namespace {

std::string mismatch_of_all(const std::vector<Problem>& problems, size_t share) {
  for (size_t i = 0; i < problems.size(); i += share) {
    std::string text = mismatch(problems[i]);
    if (text.empty() && i % 8 == 0) text = mismatch_of_response_and_squash(problems[i]);
    if (text.empty() && i % 8 == 0) text = mismatch_of_local_coefficients(problems[i]);
    if (!text.empty()) return problems[i].name() + ": " + text;
  }
  return "";
}

// First what is checked quickly and finds most faults: the small tables and problems. The others follow in
// jumps from the last, because neighbours in the table are alike. Of the problems one in `share` is solved.
std::string any_mismatch(size_t share) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    if (const std::string text = mismatch_of_coefficients(type); !text.empty()) return text;
    if (const std::string text = mismatch_of_pooled_coefficients(type); !text.empty()) return text;
    if (const std::string text = mismatch_of_many_towers(type); !text.empty()) return text;
    if (const std::string text = mismatch_of_sample_coefficients(type); !text.empty()) return text;
  }
  if (const std::string text = mismatch_of_streams(); !text.empty()) return text;
  const std::vector<Problem> all = problems();
  std::vector<Problem> small, large;
  for (size_t i = 0; i < all.size(); ++i) {
    const Problem& p = all[all.size() - 1 - i * 37 % all.size()];
    const auto elements = std::accumulate(p.sizes.begin(), p.sizes.end(), int64_t{1}, std::multiplies<>());
    (elements <= 100 ? small : large).push_back(p);
  }
  if (const std::string text = mismatch_of_all(small, share); !text.empty()) return text;
  if (const std::string text = mismatch_of_all({large.begin(), large.begin() + 16}, share); !text.empty())
    return text;
  if (const std::string text = mismatch_of_moved_bytes(); !text.empty()) return text;
  if (const std::string text = mismatch_of_far_rows(); !text.empty()) return text;
  if (const std::string text = mismatch_of_long_sums(); !text.empty()) return text;
  if (const std::string text = mismatch_of_special_values(); !text.empty()) return text;
  emulation::set_stream(3 + emulation::fault);  // on which nobody has taken tickets
  const auto many = std::ranges::find_if(all, [](const Problem& p) { return p.offsets.size() > 256; });
  if (const std::string text = mismatch_of_local_coefficients(*many); !text.empty()) return text;
  emulation::set_stream(0);
  return mismatch_of_all({large.begin() + 16, large.end()}, share);
}

// A fault may end the process, so that each has one of its own.
void judge(int fault, size_t share = 1) {
  emulation::fault = fault;
  std::string text;
  try {
    text = any_mismatch(share);
  } catch (const std::exception& e) {
    text = e.what();
  }
  std::fprintf(stderr, "%s\n", text.c_str());
  std::_Exit(text.empty() ? 0 : 1);
}

TEST(EmulatedFaults, NoneIsSwitchedOnByItself) {
  EXPECT_EXIT(judge(0, 7), testing::ExitedWithCode(0), "");
}

class EachFault : public testing::TestWithParam<size_t> {};

TEST_P(EachFault, IsCaught) {
  const int fault = static_cast<int>(GetParam()) + 1;
  EXPECT_EXIT(judge(fault), [](int status) { return status != 0; }, "") << kFaults[GetParam()];
}

INSTANTIATE_TEST_SUITE_P(Planted, EachFault, testing::Range(size_t{0}, std::size(kFaults)));

}  // namespace
}  // namespace bnlab::kernels::emulated
