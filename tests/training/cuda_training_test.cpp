// Whole runs on a GPU leave what the same runs leave on the CPU. Without a GPU they skip themselves.
#include <torch/cuda.h>

#include <thread>

#include "harness/communicator/gpus.hpp"
#include "harness/communicator/own_stream.hpp"
#include "harness/components/registry.hpp"
#include "harness/support/error.hpp"
#include "harness/training/graph_recorder.hpp"
#include "tests/models/exported_folder.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

class CudaTraining : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (visible_gpus() == 0) GTEST_SKIP() << "no GPU here: nothing was tested on cuda";
  }

  // In float64; sums are taken in another order, and five steps with momentum let the differences grow.
  static void expect_the_same_as_on_the_cpu(const RunSpec& spec) {
    TrainingRuns runs;
    const TrainedRun on_cpu = runs.run(spec, 1), on_gpu = runs.run(spec, 1, Device::cuda);
    ASSERT_EQ(on_gpu.losses.size(), on_cpu.losses.size());
    for (size_t i = 0; i < on_cpu.losses.size(); ++i)
      EXPECT_NEAR(on_gpu.losses[i], on_cpu.losses[i], 1e-8) << "step " << i;
    expect_near(on_gpu.tensors, on_cpu.tensors, 1e-8);
  }
};

TEST_P(CudaTraining, DoesWhatTheCpuDoes) {
  expect_the_same_as_on_the_cpu(TrainingRuns::spec({{"strategy", GetParam()}}));
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, CudaTraining, ::testing::ValuesIn(registered_names("strategy")),
                         [](const auto& info) { return info.param; });

using CudaTrainingOfOptions = CudaTraining;

TEST_F(CudaTrainingOfOptions, OptimizersClippingAndWeighedClassesDoWhatTheyDoOnTheCpu) {
  const Json weighed = {
      {"name", "cross_entropy"}, {"label_smoothing", 0.1}, {"class_weights", {0.2, 1, 1.5, 2, 3}}};
  for (const char* optimizer : {"sgd", "adamw"}) {
    SCOPED_TRACE(optimizer);
    expect_the_same_as_on_the_cpu(TrainingRuns::spec(
        {{"optimizer", {{"name", optimizer}, {"lr", 0.01}, {"clip_gradient_norm", 0.05}}},
         {"task", {{"name", "shapes"}, {"size", {16, 16}}, {"train", 24}, {"test", 11}, {"loss", weighed}}},
         {"loss_mean", "tower"}}));
  }
}

TEST_P(CudaTraining, ReplayedStepsLeaveWhatStepsByThemselvesLeave) {
  const Json keys = {{"strategy", GetParam()}, {"steps", 12}, {"eval_every", 8}};
  Json without_graphs = keys;
  without_graphs["cuda_graph"] = false;
  TrainingRuns runs;
  const TrainedRun by_itself = runs.run(TrainingRuns::spec(without_graphs), 1, Device::cuda);
  const TrainedRun replayed = runs.run(TrainingRuns::spec(keys), 1, Device::cuda);
  const Json summary = replayed.result.at("cuda_graph");
  EXPECT_EQ(summary.at("replayed_steps") == 0, GetParam() == "shuffle") << summary;
  expect_near(replayed.tensors, by_itself.tensors, 1e-12);  // libraries may choose other algorithms
  EXPECT_EQ(replayed.result.at("communication"), by_itself.result.at("communication"));
}

// What cannot be recorded: a part that waits for the device. Afterwards the device does what it did before.
TEST_F(CudaTrainingOfOptions, ANetworkOfPyTorchIsReplayed) {
  const ExportedFolder folder;
  const Json task = {{"name", "shapes"}, {"size", {12, 16}}, {"train", 24}, {"test", 11}};
  const std::vector<Json> options = {
      Json::object(), {{"memory_format", "channels_last"}}, {{"precision", "bfloat16"}}};
  for (const Json& option : options) {
    SCOPED_TRACE(option.dump());
    Json keys = {
        {"model", folder.model()}, {"task", task}, {"strategy", "sync"}, {"steps", 12}, {"eval_every", 12}};
    keys.update(option);
    TrainingRuns runs;
    const TrainedRun replayed = runs.run(TrainingRuns::spec(keys), 1, Device::cuda);
    EXPECT_GT(replayed.result.at("cuda_graph").at("replayed_steps"), 0) << replayed.result.at("cuda_graph");
    keys["cuda_graph"] = false;
    const TrainedRun by_itself = runs.run(TrainingRuns::spec(keys), 1, Device::cuda);
    expect_near(replayed.tensors, by_itself.tensors, option.contains("precision") ? 1e-6 : 1e-12);
  }
}

TEST_F(CudaTrainingOfOptions, ANetworkOfPyTorchThatWaitsForValuesIsNotReplayed) {
  ExportedFolder folder;
  folder.weigh_by_the_largest();
  const RunSpec spec =
      TrainingRuns::spec({{"model", folder.model()},
                          {"task", {{"name", "shapes"}, {"size", {12, 16}}, {"train", 24}, {"test", 11}}},
                          {"steps", 8},
                          {"eval_every", 8}});
  const Json graphs = TrainingRuns().run(spec, 1, Device::cuda).result.at("cuda_graph");
  EXPECT_EQ(graphs.at("replayed_steps"), 0);
  EXPECT_NE(graphs.dump().find("aten::one_hot in pick"), std::string::npos) << graphs;
}

TEST_F(CudaTrainingOfOptions, ARecordingThatFailsLeavesTheDeviceAsItWas) {
  const at::Device device(at::kCUDA, 0);
  const OwnStream stream(device);
  const MakeRecorder recorders = recorders_of(device);
  at::Tensor x = at::ones({64}, device);
  for (const bool first_part : {true, false}) {
    const auto recorder = recorders();
    const auto waits = [&] { (x * 2).sum().item<float>(); };
    if (!first_part) recorder->record(StepPart::forward, [&] { x.mul_(3); });
    EXPECT_THROW(recorder->record(first_part ? StepPart::forward : StepPart::backward, waits), Error);
    EXPECT_EQ(x.sum().item<float>(), 64);
  }
  const auto recorder = recorders();
  recorder->record(StepPart::forward, [&] { x.mul_(3); });
  recorder->record(StepPart::backward, [&] { x.add_(1); });
  recorder->replay(StepPart::forward);
  recorder->replay(StepPart::backward);
  EXPECT_EQ(x.sum().item<float>(), 4 * 64);
}

TEST_F(CudaTrainingOfOptions, ARecordingThatAnotherThreadEndsSaysSo) {
  const at::Device device(at::kCUDA, 0);
  const OwnStream stream(device);
  at::Tensor x = at::ones({64}, device);
  const auto other_thread_waits = [&] {
    std::thread([] { EXPECT_ANY_THROW(torch::cuda::synchronize()); }).join();
    x.mul_(3);
  };
  try {
    recorders_of(device)()->record(StepPart::forward, other_thread_waits);
    FAIL() << "it was recorded";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("another thread"), std::string::npos) << error.what();
  }
  EXPECT_EQ(x.sum().item<float>(), 64);
}

}  // namespace
}  // namespace bnlab
