#include <gtest/gtest.h>

#include "tests/tasks/make_task.hpp"

namespace bnlab::motion_test {
namespace {

std::unique_ptr<Task> motion(uint64_t seed, const Json& changes = Json::object()) {
  Json options = {{"train", 32}, {"test", 48}};
  options.update(changes);
  return test::make_task("motion", options, {seed, ""});
}

// Of the test clips, [clips, frames, 3, 32, 32] float64.
at::Tensor clips(const Task& task) {
  return task.test(0, task.test_samples()).images.unflatten(0, {-1, task.rows_per_sample()}).to(at::kDouble);
}

TEST(Motion, HasTheDeclaredSizes) {
  const auto task = motion(0, {{"frames", 5}});
  EXPECT_EQ(task->classes(), 16);
  EXPECT_EQ(task->rows_per_sample(), 5);
  EXPECT_EQ(task->headline(), "top1");
  const Examples batch = task->training({{3, 0}, {20, 1}});
  EXPECT_EQ(batch.images.sizes(), (std::vector<int64_t>{10, 3, 32, 32}));
  EXPECT_EQ(task->test(40, 8).images.size(0), 40);
  EXPECT_EQ(task->training({}).images.size(0), 0);
}

TEST(Motion, DataIsAFunctionOfTheSeedAndTheSample) {
  const auto one = motion(1), few = motion(1, {{"train", 8}, {"test", 5}}), other = motion(2);
  EXPECT_TRUE(one->test(0, 5).images.equal(few->test(0, 5).images));
  EXPECT_TRUE(one->training({{7, 0}}).images.equal(few->training({{7, 3}}).images));
  EXPECT_FALSE(one->test(0, 5).images.equal(other->test(0, 5).images));
  EXPECT_FALSE(one->training({{0, 0}}).images.equal(one->test(0, 1).images));
}

TEST(Motion, EverySixteenClipsShowEachClassOnceInAnOrderOfTheirOwn) {
  const at::Tensor labels = motion(0)->test(0, 48).labels.view({3, 16});
  EXPECT_TRUE(std::get<0>(labels.sort(1)).eq(at::arange(16)).all().item<bool>()) << labels;
  EXPECT_FALSE(labels[0].equal(labels[1]));
  EXPECT_FALSE(labels[0].equal(at::arange(16)));
}

TEST(Motion, ClipsAreRoughlyStandardised) {
  const at::Tensor all = clips(*motion(0, {{"test", 160}}));
  EXPECT_NEAR(all.mean().item<double>(), 0, 0.2);
  EXPECT_NEAR(all.std().item<double>(), 1, 0.2);
}

// Where the frames are brighter than the clip's mean frame (by more than most of their pixels are, as whole
// frames differ a little), the thing is: its centre along an axis, [clips, frames].
at::Tensor centre(const at::Tensor& clips, int64_t axis) {
  const at::Tensor difference = (clips - clips.mean(1, true)).mean(2);  // [clips, frames, 32, 32]
  const at::Tensor most = std::get<0>(difference.flatten(2).median(2)).unsqueeze(2).unsqueeze(3);
  const at::Tensor change = (difference - most).clamp_min(0);
  const at::Tensor along = change.sum(axis == 0 ? 3 : 2), place = at::arange(32, at::kDouble);
  return (along * place).sum(2) / along.sum(2);
}

TEST(Motion, PairsOfClassesMoveAlikeInOppositeDirections) {
  const auto task = motion(0, {{"test", 96}});
  const at::Tensor all = clips(*task), labels = task->test(0, 96).labels;
  for (int64_t i = 0; i < 96; ++i) {
    const int64_t motion = labels[i].item<int64_t>() % 8, axis = motion < 2 ? 1 : 0;
    if (motion < 4) {
      const at::Tensor way = centre(all.narrow(0, i, 1), axis)[0];
      const double moved = (way[7] - way[0]).item<double>();
      EXPECT_GT(motion % 2 == 0 ? moved : -moved, 10) << "clip " << i;
    }
    if (motion >= 6) {  // the growing disc is brighter than what it covers
      const at::Tensor brightness = all[i].flatten(1).mean(1) - all[i].flatten(1).min();
      const bool grows = (brightness[7] > brightness[0]).item<bool>();
      EXPECT_EQ(grows, motion == 6) << "clip " << i;
    }
  }
}

// The scene is a gain: that of bright scenes is about exp(0.6) times that of dark ones.
TEST(Motion, ScenesDifferInTheGainOfTheWholeClip) {
  const auto task = motion(3, {{"test", 320}});
  const at::Tensor of_channels = clips(*task).transpose(1, 2).flatten(2).std(2),
                   scene = task->test(0, 320).labels.ge(8);
  const at::Tensor contrast = of_channels.log().mean(1);
  const double bright = contrast.masked_select(scene).mean().item<double>(),
               dark = contrast.masked_select(scene.logical_not()).mean().item<double>();
  EXPECT_NEAR(bright - dark, 0.6, 0.1);
}

// Noise of a fixed strength would tell the gain however a clip is normalised.
TEST(Motion, ScenesAreAlikeOnceAClipIsNormalised) {
  const auto task = motion(3, {{"test", 320}});
  const at::Tensor all = clips(*task), scene = task->test(0, 320).labels.ge(8);
  const at::Tensor bends = all.slice(4, 0, 30) - 2 * all.slice(4, 1, 31) + all.slice(4, 2, 32);
  const at::Tensor rough =
      std::get<0>(bends.abs().flatten(1).median(1)) / all.transpose(1, 2).flatten(2).std(2).mean(1);
  const double bright = rough.log().masked_select(scene).mean().item<double>(),
               dark = rough.log().masked_select(scene.logical_not()).mean().item<double>();
  EXPECT_NEAR(bright, dark, 0.2);
}

// Of each clip: how much more its frames change from row to row than from column to column, the thing apart.
at::Tensor lies_along_rows(const at::Tensor& clips) {
  const auto changes = [&](int64_t axis) {
    return std::get<0>(clips.diff(1, axis).abs().flatten(1).median(1));
  };
  return (changes(3) / changes(4)).log();
}

TEST(Motion, ScenesOfTextureDifferInTheWayOfTheBackgroundAndNotInTheGain) {
  const auto task = motion(3, {{"test", 320}, {"scene", "texture"}});
  const at::Tensor all = clips(*task), scene = task->test(0, 320).labels.ge(8);
  const at::Tensor way = lies_along_rows(all);
  EXPECT_GT(way.masked_select(scene.logical_not()).min().item<double>(), 0);
  EXPECT_LT(way.masked_select(scene).max().item<double>(), 0);
  const at::Tensor contrast = all.transpose(1, 2).flatten(2).std(2).log().mean(1);
  EXPECT_NEAR(contrast.masked_select(scene).mean().item<double>(),
              contrast.masked_select(scene.logical_not()).mean().item<double>(), 0.1);
  const at::Tensor gains = clips(*motion(3, {{"test", 320}}));
  EXPECT_NEAR(lies_along_rows(gains).masked_select(scene).mean().item<double>(), 0, 0.3);
}

TEST(Motion, ReportsWhatAClassIsMadeOf) {
  const auto task = motion(0);
  at::Tensor counts = at::zeros({16, 16}, at::kLong);
  counts[0][8] = 1;  // another scene
  counts[0][1] = 1;  // the other direction
  counts[9][7] = 1;  // another motion in another scene, the same direction
  counts[5][5] = 1;
  const Json metrics = task->metrics(counts);
  EXPECT_DOUBLE_EQ(metrics["top1"], 1.0 / 4);
  EXPECT_DOUBLE_EQ(metrics["motion_accuracy"], 2.0 / 4);
  EXPECT_DOUBLE_EQ(metrics["direction_accuracy"], 3.0 / 4);
  EXPECT_DOUBLE_EQ(metrics["scene_accuracy"], 2.0 / 4);
}

TEST(Motion, SortsByClassAndByScene) {
  const auto task = motion(0);
  for (int64_t i = 0; i < 32; ++i) {
    const int64_t label = task->training({{i, 0}}).labels.item<int64_t>();
    EXPECT_EQ(task->sort_values("class")[static_cast<size_t>(i)], static_cast<double>(label));
    EXPECT_EQ(task->sort_values("scene")[static_cast<size_t>(i)], static_cast<double>(label / 8));
  }
}

TEST(Motion, ValidationShowsTrainingClipsInTheOrderAskedFor) {
  const auto task = motion(3, {{"frames", 3}});
  const auto validation = task->validation({20, 4, 7});
  EXPECT_EQ(validation->test_samples(), 3);
  EXPECT_EQ(validation->training_samples(), 0);
  const Examples shown = validation->test(0, 3), trained = task->training({{20, 0}, {4, 0}, {7, 0}});
  EXPECT_TRUE(at::equal(shown.images, trained.images));
  EXPECT_TRUE(at::equal(shown.labels, trained.labels));
}

}  // namespace
}  // namespace bnlab::motion_test
