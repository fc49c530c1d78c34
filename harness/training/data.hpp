// The data of a run as one rank meets them: the batches that it trains on, batches drawn apart from them for
// the population `precise`, the test split, and where weights are selected the validation split, all dealt to
// towers and moved to the device.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/strategy.hpp"
#include "harness/tasks/sampler.hpp"
#include "harness/tasks/task.hpp"
#include "harness/training/prefetch.hpp"

namespace bnlab {

// What is evaluated. Validation is a part of the training set, which is then not trained on.
enum class EvaluationSplit { test, validation };

class Data {
 public:
  // `spec` outlives this. Throws Error where the task, the placement or the shards refuse.
  Data(const RunSpec& spec, const std::string& data_dir, const World& world);
  Data(const RunSpec&& spec, const std::string&, const World&) = delete;

  const Task& task() const { return *task_; }
  // The task whose test split is evaluated there. Without `select` in the spec there is no validation split.
  const Task& task_of(EvaluationSplit split) const {
    return split == EvaluationSplit::test ? *task_ : *validation_;
  }
  std::vector<EvaluationSplit> splits() const {
    return validation_ ? std::vector{EvaluationSplit::test, EvaluationSplit::validation}
                       : std::vector{EvaluationSplit::test};
  }
  const Towers& towers() const { return towers_; }                  // in a training batch
  const Towers& towers_of_pass() const { return towers_of_pass_; }  // in its micro-batches
  int64_t steps() const { return steps_; }                          // in the whole training
  double epochs(int64_t steps) const;  // passes through the training set in so many steps

  int64_t passes() const { return spec_.accumulate; }  // in a training step
  Batch training(int64_t step);  // steps follow each other, from any one on; after any step may come step 0
  // The steps to come are step 0 to the last, over and over: the workers go on at the seam.
  void repeat();
  // The parts of a training batch that are passed one after the other, each with this rank's share of every
  // tower: views where the rank has one tower, else copies. One part is the batch.
  Batch micro_batch(const Batch& batch, int64_t index) const;
  // Threads that make training batches ahead of the steps; 0: each step makes its own.
  int64_t workers() const { return workers_; }
  // Training images in an order of their own, drawn from (seed, index), with augmentation that no training
  // step draws, dealt to towers and shards as in training.
  Batch calibration(int64_t index);
  // The test split in groups of the size of what is passed at once in training, each of images of one size.
  // The last of a size may be smaller: towers are filled in order.
  int64_t test_batches() const { return std::ssize(test_batches_); }
  Batch test(int64_t index) const { return evaluated(EvaluationSplit::test, index); }
  int64_t test_batch_of(int64_t sample) const;  // the index of the one that holds a sample
  // All batches of a split in turn; with data workers these make them ahead.
  void each(EvaluationSplit split, const std::function<void(const Batch&)>& use) const;
  int64_t first_sample(EvaluationSplit split, const Batch& batch) const;  // in this rank's share of a batch

  // Whose shard of the training set a test sample belongs to, by the key that the set is sorted by. Throws
  // Error (refused) where it is not sorted, or by what is not known of a test sample.
  int64_t tower_of_test(int64_t sample) const;
  // The test samples of a tower in batches as above; `samples`: those of this rank.
  void each_test_of(int64_t tower,
                    const std::function<void(const Batch&, const std::vector<int64_t>& samples)>& use) const;

 private:
  // Samples that are evaluated together.
  struct Range {
    int64_t begin = 0;
    int64_t samples = 0;
  };
  using Ranges = std::vector<Range>;

  Ranges ranges_of(const Task& task) const;
  const Ranges& ranges_of(EvaluationSplit split) const {
    return split == EvaluationSplit::test ? test_batches_ : validation_batches_;
  }
  Batch evaluated(EvaluationSplit split, int64_t index) const;
  Examples examples(std::vector<Draw> draws) const;
  Batch made(int64_t step);
  const std::vector<int64_t>& towers_of_test() const;
  Batch on_device(const Examples& examples, Towers towers, int64_t index) const;
  void move(const Examples& examples, at::ScalarType type, at::MemoryFormat format, Batch& batch) const;

  const RunSpec& spec_;
  at::Device device_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<Task> validation_;  // null without `select`
  std::vector<int64_t> trained_;      // samples of the task that are trained on
  Towers towers_, towers_of_pass_;
  Ranges test_batches_, validation_batches_;
  mutable std::vector<int64_t> towers_of_test_;  // once they were asked for
  int64_t steps_;
  int64_t workers_;
  std::mutex drawing_;  // guards training_
  Sampler training_;
  Sampler calibration_;
  bool repeats_ = false;
  std::unique_ptr<Prefetch> prefetch_;  // from the first training batch on; its threads use the others
};

}  // namespace bnlab
