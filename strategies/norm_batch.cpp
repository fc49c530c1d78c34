// norm_batch: exactly `samples` consecutive samples of the global batch share their moments, on however many
// GPUs they lie. Where a tower holds more of them it is cut into virtual batches, as by `ghost`, and nothing
// is exchanged; where it holds fewer, whole neighbouring towers make a group, as by `sync`. The towers of a
// batch of 16 may be 1x16, 4x4 or 16x1: with samples 8 all three train the same weights.
#include <numeric>

#include "strategies/engine/bn_strategy.hpp"

namespace bnlab::norm_batch {
namespace {

// How many consecutive towers of these sizes make a set: 1 where every tower can be cut into sets of
// `samples`; none where neither that nor a group of towers fits.
std::optional<int64_t> towers_of_a_set(const std::vector<int64_t>& sizes, int64_t samples) {
  const auto fits = [&](size_t group) {
    for (size_t first = 0; first < sizes.size(); first += group) {
      const auto begin = sizes.begin() + static_cast<std::ptrdiff_t>(first);
      const int64_t sum = std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(group), int64_t{0});
      if (group == 1 ? sum % samples != 0 : sum != samples) return false;
    }
    return true;
  };
  for (size_t group = 1; group <= sizes.size(); ++group)
    if (sizes.size() % group == 0 && fits(group)) return static_cast<int64_t>(group);
  return std::nullopt;
}

}  // namespace

struct Options : BnOptions {
  int64_t samples = 4;

  void describe(OptionVisitor& option) {
    option("samples", samples,
           "samples normalised together; must divide every tower's batch, or be that of equal groups of "
           "neighbouring towers")
        .at_least(1);
    BnOptions::describe(option);
  }

  void check(const RunOutline& run, Problems& problems) const {
    BnOptions::check(run, problems);
    const auto& sizes = run.samples_per_tower;
    if (towers_of_a_set(sizes, samples) || sizes.empty()) return;
    std::string towers;
    for (const int64_t size : sizes) towers += (towers.empty() ? "" : ", ") + std::to_string(size);
    problems.add("samples",
                 "expected a divisor of every tower's samples, or the samples of groups of as many "
                 "neighbouring towers each, got " +
                     std::to_string(samples) + " for towers of " + towers + " samples");
  }

  Rules rules(const Strategy::Context& context) const {
    Rules rules = shared_rules("norm_batch");
    rules.samples_per_set = samples;
    const int64_t towers = towers_of_a_set(context.samples_per_tower, samples).value_or(1);
    if (towers > 1) {
      rules.normalise_by = NormaliseBy::pooled;
      rules.remember = Remember::pooled;
      rules.group_size = towers;
    } else {
      rules.remember = Remember::mean;
      rules.virtual_batch = samples;
    }
    return rules;
  }
};

const Registered<Strategy> entry{
    {.name = "norm_batch",
     .summary = "exactly `samples` samples share their moments, whatever the number of GPUs",
     .source =
         "ghost batch norm (Hoffer et al. 2017) below a tower, BN groups (MLPerf, `--bn-group`) above it",
     .formula =
         "set i = samples [i B, (i + 1) B) of the global batch, B = samples\n"
         "y = gamma (x - m_i) / sqrt(v_i + eps) + beta, the gradient through m_i and v_i over the set\n"
         "running <- (1 - momentum) running + momentum mean over i of (m_i, N_i/(N_i - 1) v_i)",
     .exchanges = "none where a tower holds whole sets; else 1 forward, 1 backward",
     .use = "to hold the statistics fixed while the number of GPUs changes, and as an axis of its own",
     .limits = "refused where `samples` neither divides every tower's batch nor is that of whole groups"},
    make_bn_strategy<Options>};

}  // namespace bnlab::norm_batch
