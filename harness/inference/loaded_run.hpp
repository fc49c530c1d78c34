// A run as it was when it left its weights, with the pairs that it carried; the commands that ask trained
// weights stand on it.
#pragma once

#include <torch/types.h>

#include <map>
#include <string>

#include "harness/communicator/world.hpp"
#include "harness/inference/evaluate_job.hpp"
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

  using Pairs = std::map<std::string, at::Tensor>;  // running statistics by buffer name

  Pairs pairs() const;           // what the network's buffers hold
  void put(const Pairs& pairs);  // into them, for evaluations alone: the strategy does not know of it

  // Puts the running statistics of one of the job's populations into the network's buffers, and returns what
  // is to be evaluated with them. Does nothing where the strategy has none.
  Population load_population(const std::string& population);
  // The pair of a tower, which the run has carried.
  void load_tower(int64_t tower) { load_population("tower:" + std::to_string(tower)); }

  const RunSpec& spec() const { return spec_; }
  int64_t steps() const { return steps_; }  // trained when it left its weights
  Data& data() { return data_; }
  TrainedModel& model() { return model_; }
  Evaluator& evaluator() { return evaluator_; }

 private:
  const Pairs& pairs_of(const std::string& population) const;

  std::map<std::string, Pairs> pairs_;  // by population: those of the file, and "saved"
  RunSpec spec_;
  Data data_;
  int64_t steps_;
  TrainedModel model_;
  Evaluator evaluator_;
};

}  // namespace bnlab
