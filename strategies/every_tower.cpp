// every_tower: every tower normalises by its own moments, and all towers update one pair of running
// statistics in turn, in tower order. This is what collecting the update ops of all towers does in the
// multi-tower TensorFlow examples, and Keras' multi_gpu_model with running zero_debias. With T updates a step
// and momentum a, the pair forgets as fast as one update with 1 - (1 - a)^T would.
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab::every_tower {

struct Options : BnOptions {
  Rules rules(const Strategy::Context&) const {
    Rules rules = shared_rules("every_tower");
    rules.remember = Remember::every;
    return rules;
  }
};

const Registered<Strategy> entry{
    {.name = "every_tower",
     .summary = "every tower normalises by its own moments; all towers update the running statistics in turn",
     .source = "TensorFlow's multi-tower examples, update ops of all towers; Keras' multi_gpu_model",
     .formula = "y as per_tower\n"
                "for t = 0 .. T - 1: running <- (1 - momentum) running + momentum (m_t, n_t/(n_t - 1) v_t)",
     .exchanges = "none",
     .use = "to reproduce recipes that collect all update ops",
     .limits = "forgets T times as fast as its momentum says, and weighs the last towers most"},
    make_bn_strategy<Options>};

}  // namespace bnlab::every_tower
