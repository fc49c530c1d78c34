// Training with replayed steps without a GPU. A CPU has no graphs: here a step is "replayed" by doing the
// recorded step's work again, with all that it held fast (its pass, its batch), which shows whether that is
// what the later step would have done.
#pragma once

#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/components/registry.hpp"
#include "harness/training/data.hpp"
#include "harness/training/loss.hpp"
#include "harness/training/optimizers/optimizer.hpp"
#include "harness/training/step_graphs.hpp"
#include "harness/training/trained_model.hpp"
#include "harness/training/weight_ema.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {

class DoneAgain : public GraphRecorder {
 public:
  explicit DoneAgain(Ledger& ledger) : ledger_(ledger) {}

  void record(StepPart part, const std::function<void()>& work) override {
    works_[static_cast<size_t>(part)] = {work, false};
    work();
  }

  // Books nothing, as a graph does not.
  void replay(StepPart part) override {
    Work& kept = works_[static_cast<size_t>(part)];
    if (std::exchange(kept.replayed, true)) {
      const Ledger before = ledger_;
      kept.work();
      ledger_ = before;
    }
  }

 private:
  struct Work {
    std::function<void()> work;
    bool replayed = false;  // the first time was while it was recorded
  };
  Ledger& ledger_;
  std::array<Work, 3> works_;
};

inline MakeRecorder done_again(World& world) {
  return [&world] { return std::make_unique<DoneAgain>(world.ledger()); };
}

// A training's steps, and nothing between them.
class Training {
 public:
  Training(RunSpec spec, World& world, MakeRecorder recorders)
      : spec_(std::move(spec)),
        data_(spec_, "", world),
        model_(spec_, data_, world),
        parameters_(model_.network().parameters()),
        graphs_(spec_, parameters_, world, std::move(recorders)),
        gradients_(world.gradient_sync(parameters_, /*after_backward=*/true)),
        optimizer_(
            Registered<Optimizer>::create(spec_.optimizer, {.parameters = model_.network().named_parameters(),
                                                            .norm_sites = model_.sites(),
                                                            .steps = data_.steps()})),
        ema_(spec_.weight_ema.value_or(0.5), parameters_, model_.statistics()) {}

  void step(int64_t index) {
    pass(index);
    update(index);
  }

  // Up to the gradients, which are the mean over the ranks.
  void pass(int64_t index) {
    const Batch batch = graphs_.begin(data_.training(index), model_.repeats(index));
    gradients_->before_forward();
    const auto forward = [this, batch, index] {
      const Loss::OfOutputs loss_of = [](const at::Tensor& logits, const Batch& passed) {
        return at::cross_entropy_loss(logits, passed.labels, {}, at::Reduction::Mean, Task::kVoid);
      };
      for (int64_t pass = 0;; ++pass) {
        const Batch passed = data_.micro_batch(batch, pass);
        const at::Tensor loss = Loss::total(loss_of, model_.forward(passed, index, Mode::train), passed);
        if (pass + 1 == data_.passes()) {
          gradients_->before_backward();
          return loss;
        }
        loss.backward();
      }
    };
    graphs_.forward(forward, [this] { gradients_->after_backward(); });
    graphs_.backward();
    gradients_->exchange();
  }

  void update(int64_t index) {
    const auto update = [this, index](StepBytes* bytes) {
      optimizer_->step(index, [&](const std::string& name) { return model_.trainable(name, index); }, bytes);
      ema_.update(index, bytes);
    };
    graphs_.update(update, optimizer_->can_be_recorded());
    gradient_norm_ = optimizer_->gradient_norm().item<double>();
    gradients_->after_step(index + 1);
  }

  // Parameters, buffers, running pairs, what the optimizer remembers, averages, the norm of the gradients.
  std::map<std::string, at::Tensor> state() {
    class Taken : public State {
     public:
      std::map<std::string, at::Tensor> tensors;
      void tensor(const std::string& name, const at::Tensor& tensor, Across) override {
        tensors[name] = tensor.detach();
      }
      void json(const std::string& name, Json& value) override {
        if (value.is_number()) tensors[name] = at::scalar_tensor(value.get<double>(), at::kDouble);
      }
      bool goes_on() const override { return false; }
      bool same_ranks() const override { return true; }
    } taken;
    model_.describe(taken);
    optimizer_->describe(taken);
    ema_.describe(taken);
    taken.tensors["gradient_norm"] = at::scalar_tensor(gradient_norm_, at::kDouble);
    return taken.tensors;
  }

  StepGraphs& graphs() { return graphs_; }
  TrainedModel& model() { return model_; }

 private:
  RunSpec spec_;
  Data data_;
  TrainedModel model_;
  std::vector<at::Tensor> parameters_;
  StepGraphs graphs_;
  std::unique_ptr<GradientSync> gradients_;
  std::unique_ptr<Optimizer> optimizer_;
  WeightEma ema_;
  double gradient_norm_ = 0;
};

inline RunSpec spec_of(const Json& strategy, const Json& more = Json::object()) {
  Json keys = {{"strategy", strategy},
               {"cuda_graph", true},
               {"steps", 12},
               {"model", {{"name", "unet"}, {"base", 8}, {"levels", 1}}}};
  keys.update(more);
  return TrainingRuns::spec(keys);
}

}  // namespace bnlab
