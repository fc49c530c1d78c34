// The BN family's choices as data: which moments normalise a tower, what the running statistics remember,
// what the gradient passes through and by which route the towers' moments meet; and the sets of rows that
// follow from them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/components/options.hpp"
#include "harness/network.hpp"
#include "harness/pass.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {

using kernels::Merge;

enum class NormaliseBy { local, pooled };  // the moments of the set itself, or those of a group of towers
enum class Remember {
  tower,   // one pair, from `saved_tower`
  every,   // one pair, updated once per tower, in tower order
  mean,    // one pair, updated once with the plain mean over sets of m and of v
  pooled,  // one pair, updated once with the pooled mean and variance, the mean over groups
};
BNLAB_CHOICE(Gradient, full, own_tower, stopped)

// When batch renormalisation's limits rise linearly from 1 and 0 to r_max and d_max, in training steps.
struct LimitSchedule {
  double r_max = 3;
  double d_max = 5;
  double start_step = 0;
  double end_step = 0;
  // The schedule is given in fractions of a run whose length is not known: the limits are r_max and d_max,
  // and training is refused.
  bool lacks_length = false;

  struct Limits {
    double r, d;
    bool operator==(const Limits&) const = default;
  };
  Limits limits(int64_t step) const {
    const double k = static_cast<double>(step);
    const double way = lacks_length ? 1.0
                       : end_step > start_step
                           ? std::clamp((k - start_step) / (end_step - start_step), 0.0, 1.0)
                           : (k >= end_step ? 1.0 : 0.0);
    return {1 + way * (r_max - 1), way * d_max};
  }
};

struct Rules {
  std::string strategy;  // for messages
  NormaliseBy normalise_by = NormaliseBy::local;
  Remember remember = Remember::tower;
  int64_t saved_tower = 0;  // -1: the last
  Gradient gradient = Gradient::full;
  Merge merge = Merge::chan;
  std::string route = "all_gather";     // by which the moments meet, where they are pooled (exchange/)
  int64_t group_size = 0;               // towers that share moments where they are pooled; 0: all
  int64_t virtual_batch = 0;            // local moments of so many consecutive samples; 0: of the tower
  int64_t samples_per_set = 0;          // in training every set must hold so many; 0: any number
  std::optional<LimitSchedule> renorm;  // the running statistics correct the batch's
  bool mean_only = false;               // only the mean is subtracted; no variance, no weight and bias
  bool about_zero = false;              // no mean is subtracted: E[x^2] stands in the place of the variance
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // weight of the new value; none: cumulative average
  double ddof = 1;             // what is taken off the count of a remembered variance: 1 unbiased, 0 biased
  double normalise_ddof = 0;   // the same of the variance that normalises
  bool equal_weights = false;  // towers that are pooled count alike, whatever they hold
  bool zero_debias = false;    // what the running statistics began with weighs nothing
  bool affine = true;

  bool pools() const { return normalise_by == NormaliseBy::pooled; }
  // Whether a training pass needs moments of other ranks: to normalise, or to remember.
  bool exchanges_forward() const { return pools() || remember == Remember::pooled || renorm.has_value(); }
  int64_t group(const Towers& towers) const { return group_size == 0 ? towers.count() : group_size; }
};

// The rules at a site, whose network may bring numbers along.
inline std::shared_ptr<const Rules> rules_at(const NormSite& site,
                                             const std::shared_ptr<const Rules>& rules) {
  if (!site.eps && !site.momentum && site.affine) return rules;
  Rules own = *rules;
  own.eps = site.eps.value_or(own.eps);
  if (site.momentum) own.momentum = site.momentum;
  own.affine = own.affine && site.affine;
  return std::make_shared<const Rules>(std::move(own));
}

// The rows of a batch that are normalised together where nothing is pooled: the towers, or the virtual
// batches inside them. They follow from sizes alone, so that every rank knows those of all ranks.
struct Sets {
  std::vector<int64_t> offsets;      // rows of this rank's sets, as the kernels take them
  std::vector<int64_t> elements;     // per channel, of all sets of all ranks
  std::vector<int64_t> local_tower;  // by set of this rank, from 0
  int64_t first = 0;                 // this rank's first set
  std::vector<int64_t> towers;       // elements per channel of every tower

  // The same sets in each of so many passes, those of a set one behind another; without their rows.
  Sets repeated(int64_t passes) const;
};

// positions: elements per row and channel on this rank. virtual_batch: samples per set, 0 for whole towers.
// An empty tower is one empty set.
Sets sets_of(const Towers& towers, int64_t rows_per_sample, int64_t positions, int64_t virtual_batch);

// Sums over groups of consecutive entries.
std::vector<int64_t> sums_of_groups(const std::vector<int64_t>& elements, int64_t group);

// Throws Error (refused) where, in training, a set of one value per channel would have to be normalised, or a
// schedule lacks the run's length, or a set has not samples_per_set; decided from sizes alone.
void check_pass(const std::string& site, const Rules& rules, const Pass& pass, const Sets& sets);

}  // namespace bnlab
