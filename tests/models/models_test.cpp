// What every model promises, held by a small instance of each (small_models.hpp).
#include <gtest/gtest.h>

#include <set>

#include "harness/support/mapped.hpp"
#include "harness/support/random.hpp"
#include "harness/training/precision.hpp"
#include "tests/models/one_rank_network.hpp"
#include "tests/models/small_models.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/training/training_runs.hpp"

#ifdef BNLAB_WITH_IMAGES
#include "tests/tasks/write_images.hpp"
#endif

namespace bnlab {
namespace {

TEST(Models, EachHasASmallInstance) {
  EXPECT_EQ(mapped(small_models(), [](const auto& each) { return each.first; }), registered_names("model"));
}

// Two classes of noise below images/, 12 and 3 of each, for training and test; false where they could not be
// read.
bool write_images(const std::filesystem::path& folder) {
#ifdef BNLAB_WITH_IMAGES
  Stream stream(1, "test");
  for (const auto& [split, count] : {std::pair("train", 12), {"test", 3}}) {
    for (const char* name : {"a", "b"}) std::filesystem::create_directories(folder / "images" / split / name);
    for (int i = 0; i < 2 * count; ++i) {
      test::Picture picture{20, 30, {}};
      for (int p = 0; p < 20 * 30 * 3; ++p) picture.values.push_back(static_cast<uint8_t>(stream.below(256)));
      const auto file = folder / "images" / split / (i % 2 == 0 ? "a" : "b") / (std::to_string(i) + ".png");
      test::write_png(file.string(), picture, PNG_COLOR_TYPE_RGB);
    }
  }
  return true;
#else
  static_cast<void>(folder);
  return false;
#endif
}

class EveryModel : public ::testing::TestWithParam<std::string> {
 protected:
  const SmallModel& small() const { return small_models().at(GetParam()); }
  OneRankNetwork built(const Json& strategy = "per_tower", at::ScalarType dtype = at::kDouble) const {
    return OneRankNetwork(small().model, 5, strategy, {small().image_size}, dtype);
  }
  at::Tensor images(int64_t samples, int64_t seed = 1) const {
    at::manual_seed(static_cast<uint64_t>(seed));
    const auto [height, width] = small().image_size;
    return at::randn({samples * small().rows_per_sample, 3, height, width}, at::kDouble);
  }
  Outputs forward(OneRankNetwork& built, const at::Tensor& images, Mode mode = Mode::train) const {
    return built.forward(images, mode, 0, small().rows_per_sample);
  }
  Labelled answers_for() const { return facts_of<ModelFacts>({{"name", GetParam()}}).answers_for; }
  // One that the model can be trained on.
  Json task() const {
    const auto [height, width] = small().image_size;
    switch (answers_for()) {
      case Labelled::clips:
        return {{"name", "motion"}, {"frames", small().rows_per_sample}, {"train", 24}, {"test", 11}};
      case Labelled::images:
        return {{"name", "image_folder"},
                {"root", "images"},
                {"size", small().image_size},
                {"short_side", std::max(height, width)}};
      default:
        return {{"name", "shapes"}, {"size", small().image_size}};
    }
  }
};

TEST_P(EveryModel, NamesItsParametersByTheirSites) {
  OneRankNetwork built = this->built();
  std::set<std::string> names;
  for (const NormSite& site : built.sites())
    EXPECT_TRUE(names.insert(site.name).second) << site.name << " appears twice";
  const auto parameters = built.network().named_parameters();
  for (const NormSite& site : built.sites())
    EXPECT_TRUE(parameters.contains(site.name + ".weight")) << site.name;
}

// By which strategies are checked before a run.
TEST_P(EveryModel, TellsTheChannelsOfItsSitesBeforehand) {
  const Json model = resolved_component("model", small().model);
  const Channels told = facts_of<ModelFacts>(model).norm_channels(model);
  std::set<int64_t> there;
  OneRankNetwork built = this->built();
  for (const NormSite& site : built.sites()) there.insert(site.channels);
  EXPECT_EQ(std::set<int64_t>(told.begin(), told.end()), there);
}

TEST_P(EveryModel, EveryParameterLearns) {
  OneRankNetwork built = this->built();
  const Outputs outputs = forward(built, images(3));
  at::Tensor loss = outputs.logits.pow(3).sum();
  if (outputs.auxiliary.defined()) loss = loss + outputs.auxiliary.pow(3).sum();
  loss.backward();
  for (const auto& [name, parameter] : built.network().named_parameters().pairs()) {
    ASSERT_TRUE(parameter.grad().defined()) << name;
    EXPECT_GT(parameter.grad().abs().sum().item<double>(), 0) << name;
  }
}

TEST_P(EveryModel, AnswersForEachPixelOrSample) {
  OneRankNetwork built = this->built();
  for (const Mode mode : {Mode::train, Mode::evaluate_saved}) {
    const Outputs outputs = forward(built, images(2), mode);
    EXPECT_EQ(outputs.logits.sizes().vec(),
              answers_for() == Labelled::pixels
                  ? (std::vector<int64_t>{2, 5, small().image_size[0], small().image_size[1]})
                  : (std::vector<int64_t>{2, 5}));
    EXPECT_FALSE(mode == Mode::evaluate_saved && outputs.auxiliary.defined());
    if (outputs.auxiliary.defined()) {
      EXPECT_EQ(outputs.auxiliary.sizes(), outputs.logits.sizes());
      EXPECT_GT(outputs.auxiliary_weight, 0);
    }
  }
}

TEST_P(EveryModel, EvaluatesEachSampleApart) {
  OneRankNetwork built = this->built();
  const at::Tensor x = images(3);
  const at::Tensor together = forward(built, x, Mode::evaluate_saved).logits;
  const int64_t rows = small().rows_per_sample;
  for (int64_t i = 0; i < 3; ++i) {
    const at::Tensor alone = forward(built, x.narrow(0, i * rows, rows), Mode::evaluate_saved).logits;
    EXPECT_LT((alone - together.narrow(0, i, 1)).abs().max().item<double>(), 1e-10);
  }
}

// The layout that a GPU wants too, and the precision of autocast: features keep both.
TEST_P(EveryModel, WorksInBfloat16AndChannelsLast) {
  OneRankNetwork built = this->built("per_tower", at::kFloat);
  const at::Tensor x = images(4).to(at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor exact = forward(built, x, Mode::evaluate_saved).logits;
  const Autocast autocast(Precision::bfloat16, at::kCPU);
  const at::Tensor rounded = forward(built, x, Mode::evaluate_saved).logits.to(at::kFloat);
  EXPECT_LT((rounded - exact).abs().mean().item<double>(), 0.1 * exact.abs().mean().item<double>());
  if (answers_for() == Labelled::pixels) {
    const Batch batch{x, {}, Towers({4}, 1, 0)};
    for (const at::Tensor& map : built.network().features(x, batch.pass({}, Mode::train))) {
      EXPECT_EQ(map.scalar_type(), at::kBFloat16);
      EXPECT_TRUE(map.is_contiguous(at::MemoryFormat::ChannelsLast));
    }
  }
}

TEST_P(EveryModel, HasAHeadAndLeavesNoNormSiteInIt) {
  OneRankNetwork built = this->built();
  int64_t in_head = 0;
  for (const auto& [name, parameter] : built.network().named_parameters().pairs())
    in_head += built.network().part_of(name) == Part::head;
  EXPECT_GT(in_head, 0);
  for (const NormSite& site : built.sites())
    EXPECT_NE(built.network().part_of(site.name + ".weight"), Part::head) << site.name;
}

// 4 towers on one, two and four ranks.
TEST_P(EveryModel, PlacementChangesNothing) {
  const TemporaryFolder data;
  if (answers_for() == Labelled::images && !write_images(data.path()))
    GTEST_SKIP() << "built without libjpeg and libpng, so there is no task that labels images";
  TrainingRuns runs(data.path().string());
  for (const char* strategy : {"sync", "per_tower", "shuffle"}) {
    SCOPED_TRACE(strategy);
    const RunSpec spec = TrainingRuns::spec(
        {{"strategy", strategy}, {"task", task()}, {"model", small().model}, {"steps", 3}});
    const TrainedRun one = runs.run(spec, 1);
    for (const int ranks : {2, 4}) {
      const TrainedRun several = runs.run(spec, ranks);
      ASSERT_EQ(several.losses.size(), 3u);
      for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(several.losses[i], one.losses[i], 1e-10);
      expect_near(several.tensors, one.tensors, 1e-9);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EveryModel, ::testing::ValuesIn(registered_names("model")),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace bnlab
