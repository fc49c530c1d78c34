// Replayed training steps, by replayed_training.hpp.
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/components/registry.hpp"
#include "harness/support/upload.hpp"
#include "tests/made_up_devices.hpp"
#include "tests/training/replayed_training.hpp"

namespace bnlab::step_graphs_test {
namespace {

struct Case {
  Json strategy;
  int64_t replayed;  // of 12 steps
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.strategy;
}

// Steps 0 and 1 are unlike those that follow, and then three go before one is recorded: 7 are replayed. The
// limits of batch_renorm rise until step 6.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& name : registered_names("strategy")) {
    const bool from_step_1 = name == "group_norm" || name == "instance_norm" || name == "layer_norm" ||
                             name == "none" || name == "weight_standardisation" ||
                             name == "filter_response_norm" || name == "dynamic_tanh";
    all.push_back({{{"name", name}},
                   name == "shuffle"        ? 0
                   : from_step_1            ? 8
                   : name == "batch_renorm" ? 2
                                            : 7});
  }
  const std::vector<std::pair<const char*, int64_t>> options = {
      {R"({"name": "sync", "group_size": 2})", 7},
      {R"({"name": "sync", "route": "all_reduce"})", 7},
      {R"({"name": "sync", "route": "reduce_broadcast"})", 7},
      {R"({"name": "sync", "route": "host"})", 0},
      {R"({"name": "sync", "route": "gather_activations"})", 0},
      {R"({"name": "sync", "route": "gather_activations_host"})", 0},
      {R"({"name": "sync", "variance": "averaged"})", 7},
      {R"({"name": "sync", "moments": "e_x2"})", 7},
      {R"({"name": "sync", "moments": "e_x2", "route": "all_reduce"})", 7},
      {R"({"name": "sync", "gradient": "stopped"})", 7},
      {R"({"name": "sync", "weights": "equal"})", 7},
      {R"({"name": "sync", "normalise": "unbiased"})", 7},
      {R"({"name": "per_tower", "running": "zero_debias"})", 0},  // weights fall towards momentum
      {R"({"name": "per_tower", "momentum": null})", 0},          // the k-th update weighs 1 / k
      {R"({"name": "averaged", "momentum": 1})", 7},
      // The limits rise until step 4: 5, 6 and 7 are alike.
      {R"({"name": "batch_renorm", "schedule": {"start_step": 0, "end_step": 4}})", 4},
      {R"({"name": "batch_renorm", "scope": "pooled", "schedule": null})", 7},
      // Frozen from step 6 on; the statistics are merged in that one. 8, 9 and 10 are alike.
      {R"({"name": "frozen", "base": "per_tower", "from_step": 6})", 2},
      {R"({"name": "ghost", "virtual_batch": 1})", 7},
      {R"({"name": "norm_batch", "samples": 1})", 7},
      {R"({"name": "weight_norm", "mean_only_bn": true, "scope": "pooled"})", 7}};
  for (const auto& [text, replayed] : options) all.push_back({Json::parse(text), replayed});
  return all;
}

class StepGraphsOf : public ::testing::TestWithParam<Case> {
 protected:
  static RunSpec spec(const Json& more = Json::object()) {
    Json strategy = GetParam().strategy;
    for (const Parameter& parameter : find_registered("strategy", strategy.at("name"))->parameters())
      if (parameter.required && !strategy.contains(parameter.name))
        strategy[parameter.name] = parameter.lowest;
    return spec_of(strategy, more);
  }
};

TEST_P(StepGraphsOf, ReplayedStepsLeaveWhatStepsByThemselvesLeave) {
  on_thread_ranks(2, at::kCPU, [](World& world) {
    Training by_itself(spec(), world, nullptr), replayed(spec(), world, done_again(world));
    for (int64_t step = 0; step < 12; ++step) {
      world.ledger().clear();
      by_itself.step(step);
      std::array<Traffic, kPurposeNames.size()> expected;
      for (size_t p = 0; p < expected.size(); ++p) expected[p] = world.ledger().of(static_cast<Purpose>(p));
      world.ledger().clear();
      replayed.step(step);
      for (const Purpose p : {Purpose::statistics, Purpose::gradients, Purpose::shuffle})
        EXPECT_EQ(world.ledger().of(p).bytes, expected[static_cast<size_t>(p)].bytes) << "step " << step;
    }
    expect_equal(replayed.state(), by_itself.state());
    const Json summary = replayed.graphs().summary();
    EXPECT_EQ(summary.at("replayed_steps"), GetParam().replayed) << summary;
    EXPECT_EQ(summary.contains("why_not"), GetParam().replayed == 0) << summary;
  });
}

// What a step asks of LibTorch: operations, shapes, and numbers from the host.
class Asked {
 public:
  Asked() {
    list().clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& f) -> std::unique_ptr<at::ObserverContext> {
          std::ostringstream line;
          line << f.name();
          for (const c10::IValue& input : f.inputs())
            if (input.isTensor())
              line << (input.toTensor().defined() ? c10::str(" ", input.toTensor().sizes()) : " none");
            else if (input.isScalar() || input.isIntList() || input.isBool())
              line << ' ' << input;
          list().push_back(line.str());
          return nullptr;
        })
            .needsInputs(true)
            .scopes({at::RecordScope::FUNCTION}));
  }
  ~Asked() { at::removeCallback(handle_); }
  std::vector<std::string> taken() const { return std::exchange(list(), {}); }

 private:
  static std::vector<std::string>& list() {
    thread_local std::vector<std::string> list;
    return list;
  }
  at::CallbackHandle handle_;
};

std::map<std::string, const void*> places(const std::map<std::string, at::Tensor>& tensors) {
  std::map<std::string, const void*> all;
  for (const auto& [name, tensor] : tensors)
    if (tensor.dim() > 0) all[name] = tensor.const_data_ptr();
  return all;
}

// A graph holds addresses and numbers: in a step that repeats the one before both are the same. (The numbers
// of an update change: EachUpdateHasTheNumbersOfItsStep.)
TEST_P(StepGraphsOf, StepsThatRepeatAskForTheSameOperationsOnTheSameTensors) {
  on_thread_ranks(1, at::kCPU, [](World& world) {
    Training training(spec(), world, nullptr);
    std::vector<std::string> before;
    std::map<std::string, const void*> there;
    for (int64_t step = 0; step < 12; ++step) {
      const int64_t uploads_before = uploads;
      const Asked asked;
      training.pass(step);
      const std::vector<std::string> now = asked.taken();
      training.update(step);
      const auto here = places(training.state());
      if (training.model().repeats(step) && uploads == uploads_before) {
        EXPECT_EQ(now, before) << "step " << step;
        EXPECT_EQ(here, there) << "step " << step;
      }
      before = now;
      there = here;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, StepGraphsOf, ::testing::ValuesIn(cases()), [](const auto& info) {
  return info.param.strategy.at("name").template get<std::string>() + std::to_string(info.index);
});

// The rates of groups and the decay of the average change from step to step.
TEST(StepGraphs, EachUpdateHasTheNumbersOfItsStep) {
  const char* options[] = {
      R"({"name": "sgd", "lr": 0.2, "norm_lr_multiplier": 0.5, "warmup_steps": 9})",
      R"({"name": "sgd", "lr": 0.2, "momentum": 0, "schedule": "step", "milestones": [0.7]})",
      R"({"name": "adamw", "lr": 0.01, "clip_gradient_norm": 0.05})"};
  for (const char* optimizer : options) {
    for (const char* strategy : {"sync", "group_norm"}) {
      SCOPED_TRACE(std::string(optimizer) + strategy);
      on_thread_ranks(2, at::kCPU, [&](World& world) {
        const RunSpec spec = spec_of(strategy, {{"optimizer", Json::parse(optimizer)}, {"weight_ema", 0.95}});
        Training by_itself(spec, world, nullptr), replayed(spec, world, done_again(world));
        for (int64_t step = 0; step < 12; ++step) {
          by_itself.step(step);
          replayed.step(step);
        }
        expect_equal(replayed.state(), by_itself.state());
        EXPECT_GE(replayed.graphs().summary().at("replayed_steps"), 7);
      });
    }
  }
}

// Frozen parameters are part of what is recorded.
TEST_P(StepGraphsOf, StepsThatRepeatTrainTheSameParameters) {
  on_thread_ranks(1, at::kCPU, [](World& world) {
    Training training(spec(), world, nullptr);
    const auto trained = [&](int64_t step) {
      std::vector<std::string> names;
      for (const auto& parameter : training.model().network().named_parameters())
        if (training.model().trainable(parameter.key(), step)) names.push_back(parameter.key());
      return names;
    };
    for (int64_t step = 1; step < 12; ++step)
      if (training.model().repeats(step)) EXPECT_EQ(trained(step), trained(step - 1)) << "step " << step;
  });
}

TEST(StepGraphs, ARunIsKnownToHaveNoneBeforeItStarts) {
  const auto always = [](int64_t) { return true; };
  const auto never = [](int64_t) { return false; };
  const auto every = [](int64_t n) { return [n](int64_t step) { return step % n == 0; }; };
  const std::string why = "no 4 steps that are alike followed each other";
  EXPECT_EQ(why_none_is_replayed(100, never, never), why);
  EXPECT_EQ(why_none_is_replayed(100, always, never), "");
  EXPECT_EQ(why_none_is_replayed(3, always, never), why);
  EXPECT_EQ(why_none_is_replayed(100, always, every(3)), why);  // an evaluation every 3 steps
  EXPECT_EQ(why_none_is_replayed(100, always, every(4)), "");
  on_thread_ranks(1, at::kCPU, [&](World& world) {
    const RunSpec spec = spec_of("sync");
    StepGraphs graphs(spec, {}, world, done_again(world), why);
    EXPECT_FALSE(graphs.possible());
    EXPECT_EQ(graphs.summary(), (Json{{"replayed_steps", 0}, {"why_not", why}}));
  });
}

TEST(StepGraphs, EachReplayHasTheMasksOfItsStep) {
  on_thread_ranks(1, at::kCPU, [](World& world) {
    const Json model = {
        {"name", "pspnet"}, {"backbone", {{"name", "resnet"}, {"width", 2}}}, {"dropout", 0.5}};
    const RunSpec spec = spec_of("none", {{"model", model}});
    Training by_itself(spec, world, nullptr), replayed(spec, world, done_again(world));
    for (Training* training : {&by_itself, &replayed})  // uploads of the one would count for the other
      for (int64_t step = 0; step < 8; ++step) training->step(step);
    expect_equal(replayed.state(), by_itself.state());
    EXPECT_EQ(replayed.graphs().summary(), (Json{{"replayed_steps", 4}}));
  });
}

TEST(StepGraphs, WhatIsInvalidatedIsRecordedAnew) {
  on_thread_ranks(1, at::kCPU, [](World& world) {
    int recorded = 0;
    Training training(spec_of("sync"), world, [&] {
      ++recorded;
      return std::make_unique<DoneAgain>(world.ledger());
    });
    for (int64_t step = 0; step < 10; ++step) {
      training.step(step);
      if (step == 5) training.graphs().invalidate();
    }
    EXPECT_EQ(recorded, 4);  // in steps 5 and 9, the passes and the update
    EXPECT_EQ(training.graphs().summary().at("replayed_steps"), 2);
  });
}

// Steps `first` to `last`, of a process that begins with them, with an upload after each of the steps
// `uploading`.
Json summary_of_steps(int64_t first, int64_t last, const std::set<int64_t>& uploading) {
  Json summary;
  on_thread_ranks(1, at::kCPU, [&](World& world) {
    Training training(spec_of("sync"), world, done_again(world));
    for (int64_t step = first; step <= last; ++step) {
      training.step(step);
      if (uploading.contains(step)) uploaded<double>({1}, at::kCPU);
    }
    summary = training.graphs().summary();
  });
  return summary;
}

TEST(StepGraphs, AfterARestartTheFirstStepMayUploadWhatTheOthersFind) {
  EXPECT_EQ(summary_of_steps(5, 11, {5}), (Json{{"replayed_steps", 4}}));
}

// Steps 2, 3 and 4 are alike but for the upload, which is noticed in step 5; that one and five others go
// before the next.
TEST(StepGraphs, AfterASingleUploadStepsAreCountedAnew) {
  EXPECT_EQ(summary_of_steps(2, 12, {3}), (Json{{"replayed_steps", 2}}));
}

TEST(StepGraphs, WhereEveryStepUploadsNoneIsReplayedAndTheReasonIsTold) {
  std::set<int64_t> all;
  for (int64_t step = 0; step < 30; ++step) all.insert(step);
  EXPECT_EQ(summary_of_steps(0, 29, all),
            (Json{{"replayed_steps", 0}, {"why_not", "each step takes other numbers from the host"}}));
}

TEST(StepGraphs, OnTheCpuTheRecordSaysNothingOfThem) {
  TrainingRuns runs;
  const TrainedRun with = runs.run(TrainingRuns::spec(), 2);
  const TrainedRun without = runs.run(TrainingRuns::spec({{"cuda_graph", false}}), 2);
  EXPECT_FALSE(with.result.contains("cuda_graph"));
  EXPECT_FALSE(without.result.contains("cuda_graph"));
  expect_equal(with.tensors, without.tensors);
}

TEST(StepGraphs, TheHostWaitsForADeviceNoLongerThanItMay) {
  Events ends(made_up::kDevice, std::chrono::milliseconds(20));
  ends.record();
  ends.record();
  made_up::events_have_come = false;
  EXPECT_TRUE(ends.wait(2));
  EXPECT_FALSE(ends.wait(1));
  made_up::events_have_come = true;
  EXPECT_TRUE(ends.wait(0));
  EXPECT_TRUE(ends.wait(0));
}

}  // namespace
}  // namespace bnlab::step_graphs_test
