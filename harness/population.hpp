// Populations: the running statistics with which a checkpoint is evaluated. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <string>

namespace bnlab {

struct Population {
  enum class Kind {
    saved,    // the strategy's own saved pair
    tower,    // a shadow pair updated from one tower; as the two below it never feeds training
    mean,     // a shadow pair updated with the plain mean over towers of m_t and of the unbiased v_t
    pooled,   // a shadow pair updated with the pooled mean and the unbiased pooled variance
    precise,  // recomputed over training batches, merged exactly over batches and towers
    batch,    // none: the evaluation samples' own moments, grouped as in training
  };
  Kind kind = Kind::saved;
  int64_t tower = 0;      // of Kind::tower
  int64_t batches = 0;    // of Kind::precise: training batches to recompute over
  bool averaged = false;  // of Kind::saved: the moving average of the pair (weight_ema)

  bool is_shadow() const { return kind == Kind::tower || kind == Kind::mean || kind == Kind::pooled; }
};

// "saved", "tower:3", "mean", "pooled", "precise" or "batch". Throws Error (spec) for anything else;
// `precise_batches` becomes `batches` of "precise".
Population read_population(const std::string& text, int64_t precise_batches = 0);

// "" where `text` names a population of a run with this many towers, else what is wrong with it.
std::string population_problem(const std::string& text, int64_t towers);

}  // namespace bnlab
