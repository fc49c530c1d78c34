// What bnlab forward writes: the network's answer with the weights of a file.
#include "harness/inference/forward.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "harness/support/error.hpp"
#include "harness/training/safetensors.hpp"
#include "tests/models/one_rank_network.hpp"

namespace bnlab {
namespace {

class Forward : public ::testing::Test {
 protected:
  Forward() {
    std::filesystem::create_directories(folder_);
    std::vector<NamedTensor> weights;
    for (const auto& tensors : {built_.network().named_parameters(), built_.network().named_buffers()})
      for (const auto& [name, tensor] : tensors.pairs()) weights.push_back({name, tensor});
    write_safetensors(request_.weights, weights);
  }
  ~Forward() override { std::filesystem::remove_all(folder_); }

  std::map<std::string, at::Tensor> answer(const std::vector<NamedTensor>& inputs, ForwardMode mode) {
    write_safetensors(request_.inputs, inputs);
    request_.mode = mode;
    EXPECT_EQ(run_forward_pass(request_), "init_from: 114 tensors used");
    std::map<std::string, at::Tensor> all;
    for (const NamedTensor& t : read_safetensors(request_.out)) all[t.name] = t.tensor;
    return all;
  }

  std::string refusal(const std::vector<NamedTensor>& inputs) {
    write_safetensors(request_.inputs, inputs);
    try {
      run_forward_pass(request_);
      return "accepted";
    } catch (const Error& e) {
      return e.what();
    }
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("bnlab_forward_" + std::to_string(::getpid()));
  const Json model_ = {{"name", "fcn"},
                       {"backbone", {{"name", "resnet"}, {"width", 2}}},
                       {"auxiliary_weight", 0.4},
                       {"dropout", 0}};
  OneRankNetwork built_{model_};  // 5 classes, float64
  at::Tensor images_ = at::arange(2 * 3 * 17 * 24, at::kDouble).sin().view({2, 3, 17, 24});
  at::Tensor gradient_ = at::arange(2 * 5 * 17 * 24, at::kDouble).cos().view({2, 5, 17, 24});
  ForwardRequest request_ = {.strategy = resolved_component("strategy", "per_tower"),
                             .model = resolved_component("model", model_),
                             .classes = 5,
                             .weights = folder_ / "weights.safetensors",
                             .inputs = folder_ / "images.safetensors",
                             .out = folder_ / "answer.safetensors"};
};

TEST_F(Forward, AnswersAsTheNetworkDoes) {
  const auto evaluated = answer({{"images", images_}}, ForwardMode::evaluate);
  EXPECT_TRUE(
      at::equal(evaluated.at("logits"), built_.forward(images_, Mode::evaluate_saved).logits.detach()));
  EXPECT_EQ(evaluated.size(), 1u);

  const auto trained = answer({{"images", images_}}, ForwardMode::train);
  const Outputs expected = built_.forward(images_);
  EXPECT_TRUE(at::equal(trained.at("logits"), expected.logits.detach()));
  EXPECT_TRUE(at::equal(trained.at("auxiliary"), expected.auxiliary.detach()));

  // The running statistics have taken a tenth of the batch's moments.
  const at::Tensor x =
      at::conv2d(images_, built_.network().named_parameters()["backbone.conv1.weight"], {}, 2, 3);
  const at::Tensor mean = 0.1 * x.mean({0, 2, 3}), var = 0.9 + 0.1 * x.var({0, 2, 3});
  EXPECT_TRUE(at::allclose(trained.at("after/backbone.bn1.running_mean"), mean.detach(), 1e-10));
  EXPECT_TRUE(at::allclose(trained.at("after/backbone.bn1.running_var"), var.detach(), 1e-10));
}

TEST_F(Forward, GivesTheGradientsOfALoss) {
  const auto trained =
      answer({{"images", images_}, {"grad_logits", gradient_}, {"grad_auxiliary", 2 * gradient_}},
             ForwardMode::train);
  images_.requires_grad_();
  const Outputs outputs = built_.forward(images_);
  ((outputs.logits + 2 * outputs.auxiliary) * gradient_).sum().backward();
  const auto expect_near = [&](const std::string& name, const at::Tensor& expected) {
    EXPECT_LT((trained.at(name) - expected).abs().max().item<double>(),
              1e-12 * expected.abs().max().item<double>())
        << name;
  };
  expect_near("grad/images", images_.grad());
  for (const auto& [name, parameter] : built_.network().named_parameters().pairs())
    expect_near("grad/" + name, parameter.grad());
}

// Options that hold for the towers and the length of a run, which an evaluation of given images does not
// have.
TEST_F(Forward, EvaluatesByWhateverStrategyARecordHolds) {
  const at::Tensor expected = answer({{"images", images_}}, ForwardMode::evaluate).at("logits");
  for (const char* strategy :
       {R"({"name": "frozen", "from_fraction": 0.8})", R"({"name": "frozen", "from_step": 240})",
        R"({"name": "frozen", "from_fraction": 0.5, "base": {"name": "sync", "group_size": 2}})",
        R"({"name": "batch_renorm", "schedule": {"start_fraction": 0.1, "end_fraction": 0.5}})",
        R"({"name": "sync", "group_size": 4})", R"({"name": "per_tower", "saved_tower": 3})",
        R"({"name": "single_tower", "tower": 3})", R"({"name": "cmbn", "saved_tower": 1})",
        R"({"name": "shuffle", "saved_tower": 1})", R"({"name": "ghost", "virtual_batch": 4})",
        R"({"name": "norm_batch", "samples": 16})", R"("last_tower")", R"("every_tower")", R"("averaged")",
        R"("precise")"}) {
    request_.strategy = resolved_component("strategy", Json::parse(strategy));
    EXPECT_TRUE(at::equal(answer({{"images", images_}}, ForwardMode::evaluate).at("logits"), expected))
        << strategy;
  }
}

TEST_F(Forward, TrainsAsTheFirstStepOfARun) {
  const at::Tensor of_the_base = answer({{"images", images_}}, ForwardMode::train).at("logits");
  request_.strategy = resolved_component("strategy", {{"name", "frozen"}, {"from_fraction", 0.8}});
  EXPECT_TRUE(at::allclose(answer({{"images", images_}}, ForwardMode::train).at("logits"), of_the_base));
  request_.strategy = resolved_component("strategy", {{"name", "sync"}, {"group_size", 2}});
  EXPECT_NE(refusal({{"images", images_}}).find("group_size"), std::string::npos);
}

TEST_F(Forward, SaysWhatIsWrongWithTheInputs) {
  const std::string file = request_.inputs;
  EXPECT_EQ(refusal({{"image", images_}}), file + ": image: expected images, grad_logits or grad_auxiliary");
  EXPECT_EQ(refusal({{"images", images_.to(at::kHalf)}}),
            file + ": expected images [n, 3, height, width] of float32 or float64");
  EXPECT_EQ(
      refusal({{"images", images_}, {"grad_logits", gradient_.narrow(1, 0, 4).contiguous()}}),
      file + ": grad_logits: expected the shape of what the network answers, [2,5,17,24], got [2,4,17,24]");
  EXPECT_EQ(refusal({{"images", images_}, {"grad_auxiliary", gradient_}}),
            file +
                ": grad_auxiliary: expected the shape of what the network answers, which has none, got "
                "[2,5,17,24]");
  request_.rows_per_sample = 3;
  EXPECT_EQ(refusal({{"images", images_}}),
            file + ": expected a number of images that 3 rows per sample divide, got 2");
}

}  // namespace
}  // namespace bnlab
