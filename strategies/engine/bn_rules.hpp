// The BN family's choices as data: which moments normalise a tower, what the running statistics remember,
// what the gradient passes through, and how the towers' moments meet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "harness/components/options.hpp"
#include "harness/towers.hpp"
#include "strategies/kernels/coefficients.hpp"

namespace bnlab {

using kernels::Merge;

enum class NormaliseBy { own, pooled };
enum class Remember {
  tower,   // one pair, from `saved_tower`
  every,   // one pair, updated once per tower, in tower order
  mean,    // one pair, updated once with the plain mean over sets of m and of the unbiased v
  pooled,  // one pair, updated once with the pooled mean and the unbiased pooled variance (per group: their
           // mean)
};
BNLAB_CHOICE(Gradient, full, own_tower, stopped)

// By which way the moments meet: the same numbers up to rounding, at another price.
enum class Route { all_gather, all_reduce, reduce_broadcast, host, gather_activations, automatic };
constexpr const char* names(Route) {
  return "all_gather, all_reduce, reduce_broadcast, host, gather_activations, auto";
}
// What a rank receives grows with the number of ranks by all_gather, and does not by all_reduce: auto takes the first
// on up to so many ranks, the second on more.
inline constexpr int kRanksThatGather = 16;
Route route_taken(Route route, int ranks);  // the route itself where it is not automatic

// Batch renormalisation's limits, rising linearly from 1 and 0 between two training steps.
struct Renorm {
  double r_max = 3;
  double d_max = 5;
  double start_step = 0;
  double end_step = 0;

  struct Limits {
    double r, d;
    bool operator==(const Limits&) const = default;
  };
  Limits limits(int64_t step) const;
};

struct Rules {
  std::string strategy;  // for messages
  NormaliseBy normalise_by = NormaliseBy::own;
  Remember remember = Remember::tower;
  int64_t saved_tower = 0;  // -1: the last
  Gradient gradient = Gradient::full;
  Merge merge = Merge::chan;
  Route route = Route::all_gather;
  int64_t group_size = 0;        // towers that share moments where they are pooled; 0: all
  int64_t virtual_batch = 0;     // own moments of so many consecutive samples; 0: of the tower
  std::optional<Renorm> renorm;  // the running statistics correct the batch's
  bool mean_only = false;        // only the mean is subtracted; no variance, no weight and bias
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // weight of the new value; none: cumulative average
  bool affine = true;

  int64_t group(const Towers& towers) const { return group_size == 0 ? towers.count() : group_size; }
};

}  // namespace bnlab
