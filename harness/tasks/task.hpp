// The interface of a task: data and metric, and the name of a loss. One file per task, registered there. What
// can be asked of a task before its data are read, its files and sort keys among it, is in task_facts.hpp.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <torch/types.h>

#include "harness/support/json.hpp"
#include "harness/tasks/task_facts.hpp"

namespace bnlab {

// One entry of the endless training stream (sampler.hpp).
struct Draw {
  int64_t sample = 0;  // index into the training set
  int64_t epoch = 0;   // how often the stream has been through the set before
};

// Test samples that follow each other and have one size.
struct OneSize {
  std::array<int64_t, 2> size{};  // height, width, as the network is given them
  int64_t samples = 0;
};

// Of n samples with r rows (Task::rows_per_sample) each.
struct Examples {
  at::Tensor images;  // float32 [n r, 3, H, W], contiguous, about zero mean and unit variance
  at::Tensor
      labels;  // int64 [n, H, W] of pixels, or [n] of samples: class ids; Task::kVoid where nothing is known
};

class Task {
 public:
  using Facts = TaskFacts;
  static constexpr const char* kFamily = Facts::kFamily;
  static constexpr int64_t kVoid = -1;

  struct Context {
    uint64_t seed = 0;           // for data (where synthetic) and augmentation
    std::string data_dir;        // --data or BNLAB_DATA; empty if neither is given
    int64_t image_multiple = 1;  // what the model needs heights and widths to be multiples of
  };

  virtual ~Task() = default;

  virtual int64_t classes() const = 0;
  virtual int64_t rows_per_sample() const { return 1; }            // images of a sample: the frames of a clip
  virtual std::array<int64_t, 2> training_image_size() const = 0;  // height, width
  virtual int64_t training_samples() const = 0;
  virtual int64_t test_samples() const = 0;
  // The test split in its order; the samples of all entries are test_samples().
  virtual std::vector<OneSize> test_sizes() const = 0;
  virtual bool may_have_void() const = 0;  // whether labels can hold kVoid

  // Augmented training examples; what is drawn depends on (seed, epoch, sample) alone. Thread-safe.
  virtual Examples training(const std::vector<Draw>& draws) const = 0;
  // Test samples [begin, begin + count), which have one size, as they are. Thread-safe. Where `count` is 0,
  // none, of the size of the sample `begin`.
  virtual Examples test(int64_t begin, int64_t count) const = 0;

  // The value of each training sample, [training_samples()], under one of TaskFacts::sort_keys.
  virtual std::vector<double> sort_values(const std::string& /*key*/) const { return {}; }
  // The same of each test sample, under one of TaskFacts::test_sort_keys; empty for any other key.
  virtual std::vector<double> test_sort_values(const std::string& /*key*/) const { return {}; }

  // A name for each training sample, [training_samples()]: samples of one name belong together, as tiles of
  // one image do, and stay on one side where the set is divided (held_out.hpp).
  virtual std::vector<std::string> sample_names() const {
    std::vector<std::string> names;
    for (int64_t sample = 0; sample < training_samples(); ++sample) names.push_back(std::to_string(sample));
    return names;
  }
  // The same task with these samples of its training set, in this order, in place of its test split: as they
  // are, without augmentation. It has no training set.
  virtual std::unique_ptr<Task> validation(const std::vector<int64_t>& training_samples) const = 0;

  // The loss that it is trained with: an entry of the family "loss", resolved.
  virtual const Json& loss() const = 0;

  // What the metric needs of some outputs for test samples [begin, ...): a tensor of fixed shape
  // (int64) that is summed over batches and ranks.
  virtual at::Tensor measure(const at::Tensor& outputs, const at::Tensor& labels, int64_t begin) const = 0;
  // The metrics of the whole split, from the summed tensor: {"mean_iou": ..., ...}; a number that does
  // not exist is null.
  virtual Json metrics(const at::Tensor& measured) const = 0;
  // The metric that figures and reports show first ("mean_iou").
  virtual std::string headline() const = 0;
};

}  // namespace bnlab
