// Populations: the running statistics with which a checkpoint is evaluated. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bnlab {

struct Population {
  enum class Kind {
    saved,      // the strategy's own saved pair
    tower,      // a shadow pair updated from one tower; as the two below it never feeds training
    mean,       // a shadow pair updated with the plain mean over towers of m_t and of the remembered v_t
    pooled,     // a shadow pair updated with the pooled mean and the remembered pooled variance
    precise,    // recomputed over training batches, merged exactly over batches and towers
    batch,      // none: the evaluation samples' own moments, grouped as in training
    mix,        // the saved pair, mixed with the moments of each evaluation sample itself
    own_tower,  // the pairs of single towers, each for the test samples that belong to the tower
  };
  Kind kind = Kind::saved;
  int64_t tower = 0;              // Kind::tower
  int64_t batches = 0;            // Kind::precise: training batches to recompute over
  double own_share = 0;           // Kind::mix: what the sample's own moments weigh
  bool averaged_weights = false;  // the network has the moving average of its weights (weight_ema)
  bool averaged_pair = false;     // Kind::saved: the moving average of the pair

  bool is_shadow() const { return kind == Kind::tower || kind == Kind::mean || kind == Kind::pooled; }
};

// The name under which the evaluation of the averaged weights stands among the populations.
inline constexpr const char* kAveragedWeights = "ema";

// "saved", "tower:3", "mean", "pooled", "precise", "batch", "mix:0.1", "own_tower", "ema", "ema_precise" or
// "ema_live". Throws Error (spec) for anything else; `precise_batches` becomes `batches` of what is
// recomputed.
Population read_population(const std::string& text, int64_t precise_batches = 0);

// "" where `text` may stand among the populations of a run with this many towers, else what is wrong with it.
std::string population_problem(const std::string& text, int64_t towers);

// The populations whose pairs a run has to carry beside the saved one, to be evaluated under those that are
// named: each once, under its own name.
struct Carried {
  std::string name;
  Population population;
};
std::vector<Carried> carried_for(const std::vector<std::string>& populations, int64_t towers);

}  // namespace bnlab
