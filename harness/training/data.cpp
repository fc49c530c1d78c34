#include "harness/training/data.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "harness/components/registry.hpp"
#include "harness/models/model_facts.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/random.hpp"
#include "harness/tasks/held_out.hpp"
#include "harness/training/precision.hpp"

namespace bnlab {
namespace {

// Augmentation draws from (seed, epoch, sample): calibration lies beyond every epoch of training.
constexpr int64_t kFirstCalibrationEpoch = int64_t{1} << 40;

int64_t resolved_steps(const RunSpec& spec, size_t training_samples, int64_t batch) {
  if (!spec.epochs) return spec.steps;
  constexpr double kRounding = 1e-9;  // 0.07 * 100 is a little more than 7
  const double steps = *spec.epochs * static_cast<double>(training_samples) / static_cast<double>(batch);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(steps * (1 - kRounding))));
}

Towers make_towers(const RunSpec& spec, const World& world) {
  Towers towers(spec.samples_per_tower, world.size(), world.rank());
  if (spec.average_weights_every > 0 && towers.per_rank() != 1) {
    throw Error(Error::Kind::refused, "average_weights_every: expected one tower per rank, got " +
                                          std::to_string(towers.per_rank()) + "; use --ranks " +
                                          std::to_string(towers.count()));
  }
  return towers;
}

// The training samples that are held out for validation, or those that are trained on, in order. Throws Error
// (refused) where none can be held out.
std::vector<int64_t> training_samples(bool are_held_out, const RunSpec& spec, const Task& task) {
  std::set<size_t> held;
  if (spec.select) {
    held = held_out(task.sample_names(), spec.select->validation_share);
    if (held.empty()) {
      throw Error(Error::Kind::refused,
                  "select: nothing of the training set can be held out for validation: its " +
                      std::to_string(task.training_samples()) +
                      " samples belong together; expected at least two that do not");
    }
  }
  std::vector<int64_t> samples;
  for (int64_t sample = 0; sample < task.training_samples(); ++sample)
    if (held.contains(static_cast<size_t>(sample)) == are_held_out) samples.push_back(sample);
  return samples;
}

// Of the samples that are trained on: it numbers these.
Sampler make_sampler(const RunSpec& spec, uint64_t seed, const Task& task,
                     const std::vector<int64_t>& trained, const Towers& towers) {
  if (spec.shard_key.empty()) return Sampler::iid(seed, std::ssize(trained), towers);
  const std::vector<std::string> keys = facts_of<TaskFacts>(spec.task).sort_keys(spec.task);
  if (std::ranges::find(keys, spec.shard_key) == keys.end()) {
    throw Error(Error::Kind::refused, "shards: the task " + spec.task.at("name").get<std::string>() +
                                          " has no key " + shown(spec.shard_key) + " to sort by" +
                                          suggestion(spec.shard_key, keys));
  }
  const std::vector<double> values = task.sort_values(spec.shard_key);
  return Sampler::sorted(
      seed, mapped(trained, [&](int64_t sample) { return values[static_cast<size_t>(sample)]; }), towers);
}

constexpr int64_t kPartAlignment = 512;  // images and labels share memory; GPU memory has the same

std::vector<int64_t> fill(const std::vector<int64_t>& capacity, int64_t samples) {
  std::vector<int64_t> filled;
  for (const int64_t c : capacity) {
    filled.push_back(std::min(c, samples));
    samples -= filled.back();
  }
  return filled;
}

}  // namespace

Data::Data(const RunSpec& spec, const std::string& data_dir, const World& world)
    : spec_(spec),
      device_(world.device()),
      task_(Registered<Task>::create(
          spec.task, {spec.seed, data_dir, facts_of<ModelFacts>(spec.model).image_multiple(spec.model)})),
      validation_(spec.select ? task_->validation(training_samples(true, spec, *task_)) : nullptr),
      trained_(training_samples(false, spec, *task_)),
      towers_(make_towers(spec, world)),
      towers_of_pass_(spec.samples_per_pass(), world.size(), world.rank()),
      test_batches_(ranges_of(*task_)),
      validation_batches_(validation_ ? ranges_of(*validation_) : Ranges()),
      steps_(resolved_steps(spec, trained_.size(), towers_.total_samples())),
      // On a CPU the step needs the cores: a thread beside it pays only where making a batch waits for files.
      workers_(spec.data_workers.value_or(device_.is_cpu() ? 0 : 1)),
      training_(make_sampler(spec, spec.seed, *task_, trained_, towers_)),
      calibration_(make_sampler(spec, Stream(spec.seed, "calibration").bits(), *task_, trained_, towers_)) {}

Data::Ranges Data::ranges_of(const Task& task) const {
  Ranges ranges;
  int64_t begin = 0;
  for (const OneSize& one : task.test_sizes()) {
    const int64_t end = begin + one.samples;
    for (; begin < end; begin += ranges.back().samples)
      ranges.push_back({begin, std::min(towers_of_pass_.total_samples(), end - begin)});
  }
  return ranges;
}

double Data::epochs(int64_t steps) const {
  return static_cast<double>(steps * towers_.total_samples()) / static_cast<double>(trained_.size());
}

Batch Data::training(int64_t step) {
  if (workers_ == 0) return made(step);
  if (!prefetch_ || (step == 0 && !repeats_)) {  // the training begins, here or once more
    prefetch_ = std::make_unique<Prefetch>([this, step](int64_t s) { return made(step + s); }, steps_ - step,
                                           device_, workers_);
  }
  Batch batch = prefetch_->next();
  TORCH_INTERNAL_ASSERT(batch.index == static_cast<uint64_t>(step));
  return batch;
}

void Data::repeat() {
  if (workers_ > 0) {
    prefetch_ = std::make_unique<Prefetch>([this](int64_t s) { return made(s % steps_); },
                                           std::numeric_limits<int64_t>::max(), device_, workers_);
    repeats_ = true;
  }
}

Batch Data::made(int64_t step) {
  std::vector<Draw> draws;
  {
    const std::lock_guard lock(drawing_);
    draws = training_.batch(step);
  }
  return on_device(examples(std::move(draws)), towers_, step);
}

Examples Data::examples(std::vector<Draw> draws) const {
  for (Draw& draw : draws) draw.sample = trained_[static_cast<size_t>(draw.sample)];
  return task_->training(draws);
}

Batch Data::micro_batch(const Batch& batch, int64_t index) const {
  if (spec_.accumulate == 1) return batch;
  Batch part = batch;
  std::vector<int64_t> samples = batch.towers.all_samples();
  std::ranges::for_each(samples, [this](int64_t& of_tower) { of_tower /= spec_.accumulate; });
  part.towers = Towers(std::move(samples), batch.towers.ranks(), batch.towers.rank());
  part.micro_batch = {
      .index = index,
      .count = spec_.accumulate,
      .update = spec_.statistics_per == StatisticsPer::step ? UpdateAt::end_of_step : UpdateAt::every_pass};
  const auto part_of = [&](const at::Tensor& all, int64_t rows) {
    std::vector<at::Tensor> parts;
    const std::vector<int64_t> begins = batch.towers.local_offsets(), passed = part.towers.local_offsets();
    for (size_t t = 0; t + 1 < begins.size(); ++t) {
      const int64_t of_pass = passed[t + 1] - passed[t];
      parts.push_back(all.narrow(0, (begins[t] + index * of_pass) * rows, of_pass * rows));
    }
    return parts.size() == 1 ? parts.front() : at::cat(parts);
  };
  part.images = part_of(batch.images, batch.rows_per_sample);
  part.labels = part_of(batch.labels, 1);
  return part;
}

Batch Data::calibration(int64_t index) {
  std::vector<Draw> draws = calibration_.batch(index);
  for (Draw& draw : draws) draw.epoch += kFirstCalibrationEpoch;
  return on_device(examples(std::move(draws)), towers_, index);
}

Batch Data::evaluated(EvaluationSplit split, int64_t index) const {
  const auto [begin, samples] = ranges_of(split).at(static_cast<size_t>(index));
  Towers towers(fill(towers_of_pass_.all_samples(), samples), towers_.ranks(), towers_.rank());
  const int64_t local = towers.local_samples();
  const Examples examples = task_of(split).test(local > 0 ? begin + towers.local_begin() : begin, local);
  return on_device(examples, std::move(towers), index);
}

int64_t Data::test_batch_of(int64_t sample) const {
  const auto after = std::ranges::upper_bound(test_batches_, sample, {}, &Range::begin);
  return after - test_batches_.begin() - 1;
}

void Data::each(EvaluationSplit split, const std::function<void(const Batch&)>& use) const {
  const int64_t batches = std::ssize(ranges_of(split));
  if (workers_ == 0) {
    for (int64_t i = 0; i < batches; ++i) use(evaluated(split, i));
    return;
  }
  Prefetch ahead([this, split](int64_t i) { return evaluated(split, i); }, batches, device_, workers_);
  for (int64_t i = 0; i < batches; ++i) use(ahead.next());
}

int64_t Data::first_sample(EvaluationSplit split, const Batch& batch) const {
  return ranges_of(split).at(static_cast<size_t>(batch.index)).begin + batch.towers.local_begin();
}

const std::vector<int64_t>& Data::towers_of_test() const {
  if (towers_of_test_.empty()) {
    const std::vector<double> values =
        spec_.shard_key.empty() ? std::vector<double>() : task_->test_sort_values(spec_.shard_key);
    if (values.empty()) {
      throw Error(Error::Kind::refused,
                  "own_tower: nothing says which tower a test sample belongs to, since "
                  "the training set is not sorted by what is known of test samples");
    }
    towers_of_test_ = towers_of(values, task_->sort_values(spec_.shard_key), towers_);
  }
  return towers_of_test_;
}

int64_t Data::tower_of_test(int64_t sample) const {
  return towers_of_test().at(static_cast<size_t>(sample));
}

void Data::each_test_of(int64_t tower,
                        const std::function<void(const Batch&, const std::vector<int64_t>&)>& use) const {
  int64_t end = 0;
  for (const OneSize& one : task_->test_sizes()) {
    const int64_t begin = std::exchange(end, end + one.samples);
    std::vector<int64_t> all;
    for (int64_t sample = begin; sample < end; ++sample)
      if (tower_of_test(sample) == tower) all.push_back(sample);
    for (int64_t first = 0; first < std::ssize(all); first += towers_of_pass_.total_samples()) {
      const int64_t count = std::min(towers_of_pass_.total_samples(), std::ssize(all) - first);
      Towers towers(fill(towers_of_pass_.all_samples(), count), towers_.ranks(), towers_.rank());
      const auto local = all.begin() + first + towers.local_begin();
      const std::vector<int64_t> samples(local, local + towers.local_samples());
      Examples examples = task_->test(begin, 0);
      for (const int64_t sample : samples) {
        const Examples one_more = task_->test(sample, 1);
        examples = {at::cat({examples.images, one_more.images}), at::cat({examples.labels, one_more.labels})};
      }
      use(on_device(examples, std::move(towers), /*index=*/0), samples);
    }
  }
}

Batch Data::on_device(const Examples& examples, Towers towers, int64_t index) const {
  const at::ScalarType type = parameter_type(spec_.precision);
  const at::MemoryFormat format = bnlab::memory_format(spec_.memory_format);
  Batch batch;
  if (device_.is_cpu()) {
    batch.images = examples.images.to(device_, type, /*non_blocking=*/false, /*copy=*/false, format);
    batch.labels = examples.labels.contiguous();
  } else {
    move(examples, type, format, batch);
  }
  batch.towers = std::move(towers);
  batch.rows_per_sample = task_->rows_per_sample();
  batch.index = static_cast<uint64_t>(index);
  return batch;
}

// To a GPU in one copy, from pinned memory: neither the host nor the stream waits for it.
void Data::move(const Examples& examples, at::ScalarType type, at::MemoryFormat format, Batch& batch) const {
  const auto aligned = [](int64_t bytes) {
    return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  };
  const at::Tensor& labels = examples.labels;
  const int64_t begin = aligned(examples.images.numel() * static_cast<int64_t>(c10::elementSize(type)));
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  const at::Tensor host =
      at::empty({begin + aligned(static_cast<int64_t>(labels.nbytes()))}, bytes.pinned_memory(true));
  const auto images_of = [&](const at::Tensor& memory) {
    const at::IntArrayRef sizes = examples.images.sizes();
    const at::Tensor laid_out = at::empty(sizes, at::TensorOptions(at::kMeta), format);
    return memory.view(type).as_strided(sizes, laid_out.strides());
  };
  const auto labels_of = [&](const at::Tensor& memory) {
    return memory.narrow(0, begin, memory.numel() - begin)
        .view(labels.scalar_type())
        .narrow(0, 0, labels.numel())
        .view(labels.sizes());
  };
  images_of(host).copy_(examples.images);
  labels_of(host).copy_(labels);
  batch.memory = host.to(device_, /*non_blocking=*/true);
  batch.images = images_of(batch.memory);
  batch.labels = labels_of(batch.memory);
}

}  // namespace bnlab
