#include "harness/training/costs.hpp"

#include <torch/types.h>

#include <algorithm>
#include <string>
#include <vector>

#include "harness/support/resident_memory.hpp"
#include "harness/training/peak_memory.hpp"

namespace bnlab {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<int64_t> of_all_ranks(int64_t own, World& world) {
  const at::Tensor number = at::full({1}, own, at::TensorOptions().device(world.device()).dtype(at::kLong));
  const at::Tensor all = world.gradients().all_gather(number, Purpose::control).cpu().flatten();
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()};
}

}  // namespace

void Costs::begin(int64_t step) {
  first_step_ = step;
  peak_before_ = 0;
  reset_peak_memory(world_.device());
  world_.ledger().clear();
  seconds_before_ = 0;
  since_ = Clock::now();
}

double Costs::seconds() const {
  return seconds_before_ + (since_ ? std::chrono::duration<double>(Clock::now() - *since_).count() : 0);
}

void Costs::pause() {
  seconds_before_ = seconds();
  since_.reset();
  peak_before_ = std::max(peak_before_, peak_memory_bytes(world_.device()));
}

void Costs::resume() {
  reset_peak_memory(world_.device());
  since_ = Clock::now();
}

void Costs::describe(State& state, int64_t steps_done) {
  if (!state.same_ranks()) {
    begin(steps_done);
    return;
  }
  const at::Tensor peak = at::full({}, peak_before_, at::kLong);
  state.tensor("costs.peak_memory_bytes", peak, Across::own);
  peak_before_ = peak.item<int64_t>();
  state.value("costs.first_step", first_step_);
  for (size_t p = 0; p < kPurposeNames.size(); ++p) {
    const auto purpose = static_cast<Purpose>(p);
    Traffic traffic = world_.ledger().of(purpose);
    state.value(std::string("costs.") + kPurposeNames[p] + ".collectives", traffic.collectives);
    state.value(std::string("costs.") + kPurposeNames[p] + ".bytes", traffic.bytes);
    if (state.goes_on()) traffic.host_ns = 0;
    world_.ledger().set(purpose, traffic);
  }
  if (state.goes_on()) seconds_before_ = 0;
}

Json Costs::memory() {
  const int64_t tensors = std::max(peak_before_, peak_memory_bytes(world_.device()));
  const int64_t resident = peak_rss_bytes();
  return {{"peak_memory_bytes", of_all_ranks(tensors, world_)},
          {"peak_rss_bytes", of_all_ranks(resident, world_)}};
}

std::optional<double> Costs::exchange_share() const {
  const double all = seconds();
  if (!world_.device().is_cpu() || world_.size() == 1 || all <= 0) return std::nullopt;
  const Ledger& ledger = world_.ledger();
  const int64_t exchanges = ledger.of(Purpose::statistics).host_ns + ledger.of(Purpose::shuffle).host_ns;
  return 1e-9 * static_cast<double>(exchanges) / all;
}

Json Costs::traffic(int64_t steps_done) const {
  const auto steps = static_cast<double>(std::max<int64_t>(steps_done - first_step_, 1));
  Json all = Json::object();
  for (size_t p = 0; p < kPurposeNames.size(); ++p) {
    const auto purpose = static_cast<Purpose>(p);
    if (purpose != Purpose::evaluation && purpose != Purpose::control) {
      const Traffic& traffic = world_.ledger().of(purpose);
      all[kPurposeNames[p]] = {{"collectives_per_step", static_cast<double>(traffic.collectives) / steps},
                               {"bytes_per_step", static_cast<double>(traffic.bytes) / steps}};
    }
  }
  return all;
}

}  // namespace bnlab
