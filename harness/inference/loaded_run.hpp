// A run as it was when it left its weights, without training: for `bnlab evaluate` and `bnlab predict`.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>

#include "harness/communicator/world.hpp"
#include "harness/inference/evaluate.hpp"
#include "harness/training/data.hpp"
#include "harness/training/evaluator.hpp"
#include "harness/training/trained_model.hpp"

namespace bnlab {

class LoadedRun {
 public:
  // Called by every rank. Throws Error: data for a file that cannot be used or has no pair of a population
  // that the job asks for, refused where weights and spec do not fit.
  LoadedRun(const EvaluateJob& job, World& world);
  LoadedRun(const LoadedRun&) = delete;  // its parts refer to each other

  // Puts the running statistics of one of the job's populations into the network's buffers and returns the
  // mode in which to evaluate with them. Does nothing where the strategy has none.
  Mode load_population(const std::string& population);

  const RunSpec& spec() const { return spec_; }
  Data& data() { return data_; }
  TrainedModel& model() { return model_; }
  Evaluator& evaluator() { return evaluator_; }

 private:
  using Pairs = std::map<std::string, at::Tensor>;  // by buffer name

  const Pairs& pairs_of(const std::string& population) const;
  void put(const Pairs& pairs);

  std::map<std::string, Pairs> pairs_;  // by population: those of the file, and "saved"
  RunSpec spec_;
  Data data_;
  TrainedModel model_;
  Evaluator evaluator_;
};

}  // namespace bnlab
