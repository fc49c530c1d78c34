// The running statistics of one site: the saved pair, the pairs carried beside it for other populations, and
// the buffers that evaluation reads. Which moments of a training step each pair is updated with is decided
// here, by Rules::remember; how they enter a pair, and how the ranks hold it, is in running_pair.hpp.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/state.hpp"
#include "harness/strategy.hpp"
#include "strategies/engine/bn_rules.hpp"
#include "strategies/engine/running_pair.hpp"
#include "strategies/engine/sets.hpp"

namespace bnlab {

class SiteStatistics {
 public:
  // What `context` borrows outlives the statistics; they are in the statistics' precision of context.dtype.
  // mean, var: the site's buffers [C]; var is undefined where only the mean is kept.
  SiteStatistics(const Rules& rules, const Strategy::Context& context, at::Tensor mean, at::Tensor var);

  // The pair of a population that is carried: saved, or one of Context::shadows. Throws Error (refused).
  RunningPair& pair(const Population& population);
  RunningPair& saved() { return saved_; }
  // Puts a pair [2, C] where evaluation reads it: the buffers.
  void show(const at::Tensor& pair);
  void start_from_buffers();
  const at::Tensor& mean() const { return mean_; }
  const at::Tensor& var() const { return var_; }

  // A training step begins with this: the update of the saved pair by the moments that normalise, which the caller
  // owes as soon as they are known: of all groups of towers where they are pooled, else of this rank's own sets. None
  // where there is nothing to do, or where the pair needs other moments than those.
  std::optional<kernels::RunningUpdate> begin_step(const Sets& sets, const Towers& towers);
  // The rest of a training step. own: moments of this rank's sets [S, 1 + 2C]. At most one exchange, where a pair
  // needs the moments of all towers.
  void remember(const at::Tensor& own, const Sets& sets, const Towers& towers);
  // A pass in Mode::calibrate, and what was collected since the last call: [1 + 3C] float64, the moments of all sets of this
  // rank together, and the sum of the M2 of each of them.
  void collect(const at::Tensor& own);
  at::Tensor take_collected();

  // The pairs and the count of channels below, under names that begin with `path`.
  void describe(State& state, const std::string& path);

  // Channels whose moments were not finite, summed over the steps: of this rank's own sets, or, where all
  // ranks see the same moments, on rank 0 alone. Synchronises.
  int64_t nonfinite_channels() const { return nonfinite_.item<int64_t>(); }

 private:
  bool saved_by_normalising()
      const;                        // whether the moments that normalise are those that the saved pair takes
  at::Tensor counted_once() const;  // nonfinite_, or undefined where another rank counts the same

  Rules rules_;
  Communicator& communicator_;
  at::Tensor mean_, var_;
  RunningPair saved_;
  std::vector<std::pair<Population, RunningPair>> shadows_;
  at::Tensor collected_;  // [1, 1 + 2C]
  at::Tensor within_;     // [C], with `collected_`
  at::Tensor nonfinite_;  // int64 []
};

}  // namespace bnlab
