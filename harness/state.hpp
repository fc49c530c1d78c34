// What a run must hold to go on after it was cut short, described by the objects that hold it: each names its
// tensors and values once, and the same description serves to take them and to put them back
// (training/checkpoint.hpp).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "harness/support/json.hpp"

namespace bnlab {

// What the ranks hold under one name, which decides what other ranks than those that left it go on with.
enum class Across {
  same,    // the same on every rank, unless the ranks train apart (average_weights_every)
  sum,     // summands, of which only the sum counts
  mean,    // parts, of which only the mean counts
  towers,  // [towers of the rank, ...]: what belongs to each tower, wherever it is
  own,     // each rank its own: nothing that other ranks could go on with
};

class State {
 public:
  virtual ~State() = default;

  // A tensor, which is filled in place; names are told once. Called by every rank, in the same order.
  virtual void tensor(const std::string& name, const at::Tensor& tensor, Across ranks = Across::same) = 0;
  // A value that is the same on every rank, or matters on rank 0 alone.
  virtual void json(const std::string& name, Json& value) = 0;
  template <class T>
  void value(const std::string& name, T& value) {
    Json held = value;
    json(name, held);
    value = held.get<T>();
  }

  virtual bool goes_on() const = 0;  // whether state is put back; else it is taken
  // Whether there are as many ranks as those that left the state; true while it is taken.
  virtual bool same_ranks() const = 0;
};

}  // namespace bnlab
