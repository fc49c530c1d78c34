// The CUDA kernels on the emulated GPU (device.hpp says what that can judge), without a fault.
#include <gtest/gtest.h>

#include "tests/emulation/launch.hpp"
#include "tests/emulation/problems.hpp"

namespace bnlab::kernels::emulated {
namespace {

TEST(EmulatedKernels, EqualFloat64LoopsInEveryLayoutAndType) {
  for (const Problem& problem : problems()) EXPECT_EQ(mismatch(problem), "") << problem.name();
}

TEST(EmulatedKernels, NotANumberAndOutliersStayWhereTheyAre) {
  EXPECT_EQ(mismatch_of_special_values(), "");
}

TEST(EmulatedKernels, LongColumnsAddUpWithoutLosingDigits) {
  EXPECT_EQ(mismatch_of_long_sums(), "");
}

TEST(EmulatedKernels, FarRowsAreReached) {
  EXPECT_EQ(mismatch_of_far_rows(), "");
}

TEST(EmulatedKernels, StreamsShareNoTicket) {
  EXPECT_EQ(mismatch_of_streams(), "");
}

TEST(EmulatedKernels, CoefficientsEqualTheirFormulas) {
  EXPECT_EQ(mismatch_of_coefficients(at::kDouble), "");
  EXPECT_EQ(mismatch_of_coefficients(at::kFloat), "");
}

TEST(EmulatedKernels, OneLaunchFollowsAnExchange) {
  EXPECT_EQ(mismatch_of_pooled_coefficients(at::kDouble), "");
  EXPECT_EQ(mismatch_of_pooled_coefficients(at::kFloat), "");
}

TEST(EmulatedKernels, ManyTowersAreMergedTogether) {
  EXPECT_EQ(mismatch_of_many_towers(at::kDouble), "");
  EXPECT_EQ(mismatch_of_many_towers(at::kFloat), "");
}

TEST(EmulatedKernels, CoefficientsWithinSamplesEqualTheirFormulas) {
  EXPECT_EQ(mismatch_of_sample_coefficients(at::kDouble), "");
  EXPECT_EQ(mismatch_of_sample_coefficients(at::kFloat), "");
}

TEST(EmulatedKernels, FilterResponseAndTanhEqualFloat64LoopsInEveryLayoutAndType) {
  for (const Problem& problem : problems())
    EXPECT_EQ(mismatch_of_response_and_squash(problem), "") << problem.name();
}

TEST(EmulatedKernels, FilterResponseMoves16BytesAnElementAndTanh10) {
  EXPECT_EQ(mismatch_of_moved_bytes(), "");
}

TEST(EmulatedKernels, ASweepTakesItsStepsAlong) {
  const std::vector<Problem> all = problems();
  for (size_t i = 0; i < all.size(); i += 29)
    EXPECT_EQ(mismatch_of_local_coefficients(all[i]), "") << all[i].name();
}

TEST(EmulatedGpu, RoundsToSixteenBits) {
  EXPECT_EQ(float(at::BFloat16(1 + 0x1p-8f)), 1);  // a tie goes to the even neighbour
  EXPECT_EQ(float(at::BFloat16(1 + 0x3p-8f)), 1 + 0x4p-8f);
  EXPECT_EQ(float(at::Half(-1 - 0x1.8p-10f)), -1 - 0x2p-10f);
  EXPECT_EQ(float(at::Half(65519.0f)), 65504);
  EXPECT_EQ(float(at::Half(65520.0f)), INFINITY);
  EXPECT_EQ(float(at::Half(0x1.8p-24f)), 0x2p-24f);
  EXPECT_EQ(at::BFloat16(0x1.fep+127f + 0x1p+119f).bits, 0x7f80);
  EXPECT_TRUE(std::isnan(float(at::Half(NAN))));
}

void halves_wait(int) {
  if (threadIdx.x < 16) __syncthreads();
}
void all_wait(int* waited) {
  __shared__ int values[32];
  if (values[threadIdx.x] != -1) *waited = -1000;  // shared memory begins poisoned in every block
  values[threadIdx.x] = 1;
  __syncthreads();
  *waited += values[31 - threadIdx.x];
}

TEST(EmulatedGpu, RefusesWhatAGpuRefuses) {
  using cuda::launch;
  EXPECT_THROW(launch(halves_wait, dim3(1), dim3(32), 0), std::runtime_error);
  EXPECT_THROW(launch(halves_wait, dim3(0), dim3(32), 0), std::runtime_error);
  EXPECT_THROW(launch(halves_wait, dim3(1, 65536), dim3(32), 0), std::runtime_error);
  EXPECT_THROW(launch(halves_wait, dim3(1), dim3(2048), 0), std::runtime_error);
  int waited = 0;
  launch(all_wait, dim3(3), dim3(32), &waited);
  EXPECT_EQ(waited, 96);
}

using Ticket = unsigned;
void takes(Ticket* ticket, ::cuda::memory_order order) {
  const ::cuda::atomic_ref<Ticket, ::cuda::thread_scope_device> counted(*ticket);
  counted.fetch_add(1, order);
}

TEST(EmulatedGpu, RefusesATicketWithoutReleaseAndAcquire) {
  using cuda::launch;
  Ticket ticket = 0;
  launch(takes, dim3(1), dim3(2), &ticket, ::cuda::memory_order_acq_rel);
  for (const auto order :
       {::cuda::memory_order_relaxed, ::cuda::memory_order_acquire, ::cuda::memory_order_release})
    EXPECT_THROW(launch(takes, dim3(1), dim3(2), &ticket, order), std::runtime_error);
}

// Every lane below `lanes` adds up what the lanes of its pair, and then of its four, have.
void sums(int* out, unsigned mask, unsigned lanes) {
  if (threadIdx.x % 32 >= lanes) return;
  int sum = static_cast<int>(threadIdx.x);
  for (const int distance : {1, 2}) sum += __shfl_xor_sync(mask, sum, distance);
  out[threadIdx.x] = sum + 1000 * __shfl_down_sync(mask, sum, 4) + 1000000 * __shfl_sync(mask, sum, 0);
}

TEST(EmulatedGpu, LanesExchangeAndWaitForTheWholeMask) {
  using cuda::launch;
  for (const auto order :
       {emulation::Order::ascending, emulation::Order::descending, emulation::Order::shuffled}) {
    emulation::set_order(order);
    int out[64] = {};
    launch(sums, dim3(1), dim3(64), &out[0], ~0u, 32u);
    EXPECT_EQ(out[0], 6 + 1000 * 22 + 1000000 * 6);
    EXPECT_EQ(out[37], 150 + 1000 * 166 + 1000000 * 134);
    EXPECT_EQ(out[63], 246 + 1000 * 246 + 1000000 * 134);  // no lane stands 4 further down
    EXPECT_THROW(launch(sums, dim3(1), dim3(64), &out[0], ~0u, 16u), std::runtime_error);  // half never comes
    EXPECT_THROW(launch(sums, dim3(1), dim3(64), &out[0], 0xffffu, 32u), std::runtime_error);
  }
  emulation::set_order(emulation::Order::ascending);
}

}  // namespace
}  // namespace bnlab::kernels::emulated
