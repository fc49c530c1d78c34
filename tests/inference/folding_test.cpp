// Weights without norms: the outputs of every strategy that evaluates by constants, and who is refused.
#include "harness/inference/folding.hpp"

#include <set>

#include "harness/components/registry.hpp"
#include "harness/convolution.hpp"
#include "harness/inference/folded_layers.hpp"
#include "harness/inference/trained_run.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

std::string refusal(const std::function<void()>& body) {
  try {
    body();
    return "accepted";
  } catch (const Error& e) {
    return e.what();
  }
}

EvaluateJob job_of(const RunSpec& spec, const std::string& weights) {
  EvaluateJob job;
  job.spec = spec;
  job.weights = weights;
  job.populations = {"saved"};
  return job;
}

class Folding : public ::testing::Test {
 protected:
  RunSpec spec(const Json& strategy, const Json& model = {{"name", "unet"}, {"base", 4}, {"levels", 2}}) {
    return TrainingRuns::spec({{"strategy", strategy}, {"model", model}, {"populations", {"saved"}}});
  }
  std::string weights_of(const RunSpec& spec) {
    last_ = runs_.run(spec, 1);
    return last_.folder / kWeightsFile;
  }
  TrainingRuns runs_;
  TrainedRun last_;
};

TEST_F(Folding, GivesTheOutputsOfEveryStrategyThatEvaluatesByConstants) {
  std::set<std::string> can, cannot;
  for (const std::string& name : registered_names("strategy")) {
    Json strategy = {{"name", name}};
    for (const Parameter& parameter : find_registered("strategy", name)->parameters())
      if (parameter.required) strategy[parameter.name] = parameter.lowest;
    if (name == "group_norm") strategy["groups"] = 2;
    if (name == "weight_standardisation") strategy["base"] = "layer_norm";
    const RunSpec trained = spec(strategy);
    const std::string weights = weights_of(trained), out = last_.folder / "folded.safetensors";
    const std::string said =
        refusal([&] { EXPECT_LT(write_folded(job_of(trained, weights), out).difference, 1e-5) << name; });
    (said == "accepted" ? can : cannot).insert(name);
    if (said != "accepted") {
      EXPECT_EQ(said.find("strategy " + name), 0U) << said;
      EXPECT_NE(said.find("encoder0.norm1 depends on its input, "), std::string::npos) << said;
      EXPECT_FALSE(std::filesystem::exists(out)) << name;
      continue;
    }
    const double metric = last_.result.at("final").at("saved").at("mean_iou");
    RunSpec plain = spec("none");
    plain.precision = Precision::float32;
    EXPECT_NEAR(evaluate_weights(job_of(plain, out)).at("saved").at("mean_iou").get<double>(), metric, 1e-3)
        << name;
  }
  EXPECT_EQ(can, (std::set<std::string>{"averaged", "batch_renorm", "cmbn", "every_tower", "frozen", "ghost",
                                        "last_tower", "mabn", "none", "norm_batch", "per_tower", "precise",
                                        "shuffle", "single_tower", "sync", "weight_norm"}));
  EXPECT_EQ(cannot, (std::set<std::string>{"dynamic_tanh", "filter_response_norm", "group_norm",
                                           "instance_norm", "layer_norm", "weight_standardisation"}));
}

TEST_F(Folding, TakesConvolutionsThatMakeTheirOwnFilters) {
  for (const char* strategy :
       {R"({"name": "weight_standardisation", "base": "sync"})",
        R"({"name": "weight_standardisation", "form": "code", "base": "per_tower"})",
        R"({"name": "weight_norm", "mean_only_bn": true})", R"({"name": "sync", "affine": false})"}) {
    const RunSpec trained = spec(Json::parse(strategy));
    const std::string weights = weights_of(trained);
    const Folded folded = write_folded(job_of(trained, weights), last_.folder / "folded.safetensors");
    EXPECT_LT(folded.difference, 1e-5) << strategy;
    EXPECT_EQ(folded.norms, 6) << strategy;
  }
}

TEST_F(Folding, TakesNetworksWithResidualsAndHeads) {
  const Json resnet = {{"name", "resnet"}, {"width", 4}};
  for (const Json& model : {Json{{"name", "fcn"}, {"backbone", resnet}, {"auxiliary_weight", 0.4}},
                            Json{{"name", "pspnet"}, {"backbone", resnet}, {"bins", {1, 2}}}}) {
    const RunSpec trained = spec("sync", model);
    const std::string weights = weights_of(trained);
    EXPECT_LT(write_folded(job_of(trained, weights), last_.folder / "folded.safetensors").difference, 1e-5);
  }
}

struct Line : Layer {
  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass&) override { return 2 * x + 1 + residual; }
};
struct Ones : Convolution {
  at::Tensor forward(at::Tensor x, at::Tensor, const Pass&) override { return at::conv2d(x, filters()); }
  at::Tensor filters() const override { return at::ones({3, 3, 1, 1}, at::kDouble); }
};

TEST(FoldedLayers, NameTheNormsThatStay) {
  const auto norm = [](const std::string& name) { return MadeLayer{name, 3, std::make_shared<Line>()}; };
  const auto conv = [](const std::string& name, const ConvSite& site) {
    return MadeLayer{name, site.out, std::make_shared<Ones>(), site};
  };
  const ConvSite site{.in = 3, .out = 3, .kernel = 1, .padding = 0};
  ConvSite head = site;
  head.norm_follows = false;
  const FoldedLayers folded = folded_layers(
      {norm("first"), conv("a", site), norm("a.norm"), norm("again"), conv("head", head), norm("last")});
  EXPECT_EQ(folded.staying,
            "first has no convolution just before it, again has no convolution just before it, last has no "
            "convolution just before it");
  EXPECT_EQ(folded.norms, 1);
  EXPECT_TRUE(at::equal(folded.tensors.at("a.weight"), at::full({3, 3, 1, 1}, 2, at::kDouble)));
  EXPECT_TRUE(at::equal(folded.tensors.at("a.bias"), at::ones({3}, at::kDouble)));
  EXPECT_EQ(folded_layers({{"b", 3, std::make_shared<Line>(), site}}).staying, "b shows no filters");
}

}  // namespace
}  // namespace bnlab
