// The emulated kernels against plain float64 loops. A mismatch is told in words; an empty text means none.
#pragma once

#include <string>
#include <vector>

#include "strategies/kernels/kernels.hpp"

namespace bnlab::kernels::emulated {

struct Problem {
  at::Sizes sizes;  // [rows, channels, ...]
  Offsets offsets;
  std::string layout;  // contiguous, channels_last, strided, unaligned
  at::ScalarType type = at::kFloat;
  Activation activation = Activation::none;
  bool residual = false;
  double centre = 0.5;              // of the values of x, whose spread is about 2
  bool unaligned_residual = false;  // it alone

  std::string name() const;
};

// Every shape in every layout and dtype, some also without activation or residual; many slices, long columns
// and planes; values far from zero.
std::vector<Problem> problems();

// All five sweeps, in two orders of threads and blocks (the second descending or shuffled, by dtype), which
// may not change a bit.
std::string mismatch(const Problem& problem);
// NaN passes through ReLU, stays in its channel and slice; an outlier in the first place does not spoil M2.
std::string mismatch_of_special_values();
// A long column adds up without losing digits: no thread sums too many places in float32.
std::string mismatch_of_long_sums();
// Rows so far from the first that 32 bits do not count their elements.
std::string mismatch_of_far_rows();
// Kernels of two streams meet nowhere.
std::string mismatch_of_streams();
// Merged moments, forward and backward coefficients, the update of running statistics; on sets of which some
// are empty.
std::string mismatch_of_coefficients(at::ScalarType type);
// The steps after an exchange, in one launch each, are what they are one after the other, to the last bit:
// for towers in groups, of which this rank holds some.
std::string mismatch_of_pooled_coefficients(at::ScalarType type);
// The same of so many towers that several threads share a channel; and what they merge is what float64 loops
// give.
std::string mismatch_of_many_towers(at::ScalarType type);
// A sweep with the steps that follow it in one launch is what they are one after the other, to the last bit;
// and a site without an exchange takes two launches forward and two backward.
std::string mismatch_of_local_coefficients(const Problem& problem);
// The kernels of filter_response_norm and dynamic_tanh, forward and backward, in two orders of threads and
// blocks.
std::string mismatch_of_response_and_squash(const Problem& problem);
// How many bytes they move under bfloat16, and that a NaN stays in its place.
std::string mismatch_of_moved_bytes();
// Moments and sums of samples of which one is empty, merged over groups of channels.
std::string mismatch_of_sample_coefficients(at::ScalarType type);

}  // namespace bnlab::kernels::emulated
