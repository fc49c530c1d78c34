// experiments/recipes: each is a base that a small spec can extend and train with.
#include <algorithm>
#include <fstream>

#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

const fs::path kRecipes = fs::path(__FILE__).parent_path() / "../../experiments/recipes";

std::vector<std::string> recipes() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kRecipes)) names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

class Recipes : public ::testing::TestWithParam<std::string> {
 protected:
  // A spec of two short steps on the recipe. What belongs to the recipe's own data is left out: class
  // weights, and the length of the run.
  Experiment extended() {
    const Json spec = {
        {"extends", fs::absolute(kRecipes / (GetParam() + ".json")).string()},
        {"task",
         {{"name", "shapes"},
          {"size", {16, 16}},
          {"train", 8},
          {"test", 2},
          {"loss", {{"class_weights", nullptr}}}}},
        {"model",
         {{"name", "fcn"}, {"backbone", {{"name", "resnet"}, {"width", 2}}}, {"auxiliary_weight", 0.4}}},
        {"strategy", "sync"},
        {"towers", 2},
        {"batch_per_tower", 2},
        {"epochs", nullptr},
        {"steps", 2},
        {"precise_batches", 1},
        {"log_every", 1}};
    const fs::path file = runs_.new_folder() / "extended.json";
    std::ofstream(file) << spec;
    return load_experiment(file.string());
  }

  TrainingRuns runs_;
};

TEST_P(Recipes, CanBeExtendedAndTrainedWith) {
  const Experiment experiment = extended();
  ASSERT_EQ(experiment.runs.size(), 1u);
  EXPECT_EQ(runs_.run(experiment.runs[0], 1).losses.size(), 2u);
}

TEST_P(Recipes, SayWhatTheyFollowAndNameTheirOptimizer) {
  const Experiment experiment = extended();
  EXPECT_NE(experiment.source.find('/'), std::string::npos) << "expected a project's file";
  const Json recipe = Json::parse(std::ifstream(kRecipes / (GetParam() + ".json")));
  EXPECT_FALSE(recipe.contains("strategy")) << "the strategy is the question";
  EXPECT_TRUE(recipe.at("optimizer").contains("lr"));
  EXPECT_EQ(experiment.runs[0].optimizer.at("lr"), recipe.at("optimizer").at("lr"));
}

INSTANTIATE_TEST_SUITE_P(EveryFile, Recipes, ::testing::ValuesIn(recipes()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace bnlab
