// The keys `evaluation` and `populations`: which images the network is given, with which statistics.
#include "tests/experiment/spec_files.hpp"

namespace bnlab {
namespace {

using Sizes = ImageSizes;

TEST(Evaluation, TellsTheSizesThatTheNetworkIsGiven) {
  const Sizes of_task = {{32, 48}, {60, 80}};  // of training, of the test
  EXPECT_EQ(Evaluation{}.sizes_seen(of_task), of_task);
  EXPECT_EQ((Evaluation{.scales = {0.5, 1}}.sizes_seen(of_task)), (Sizes{{32, 48}, {30, 40}, {60, 80}}));
  EXPECT_EQ((Evaluation{.crop = {{24, 24}}}.sizes_seen(of_task)), (Sizes{{32, 48}, {24, 24}}));
  EXPECT_EQ((Evaluation{.scales = {0.5}}.sizes_seen({{32, 48}})), (Sizes{{32, 48}}));
  EXPECT_EQ((Evaluation{.crop = {{24, 24}}}.sizes_seen({})), (Sizes{{24, 24}}));
}

class EvaluationKey : public SpecFiles {};

TEST_F(EvaluationKey, StandsWherePixelsAreLabelled) {
  const std::string clips = R"({"task": "fake_clips", "model": "fake_clip_net", "strategy": "fake_own",
    "batch_per_tower": 2, "steps": 1, "evaluation": {"flip": true}})";
  const Lines found = mistakes(clips);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(found[0].find("evaluation: expected the defaults on a task that does not label pixels"),
            std::string::npos)
      << found[0];
}

TEST_F(EvaluationKey, NamesAMixByItsShortestNumber) {
  EXPECT_EQ(mistakes(R"({"task": "fake_shapes", "model": "fake_net", "strategy": "fake_own",
    "batch_per_tower": 2, "steps": 1, "populations": ["mix:0.5", "mix:0.50"]})"),
            Lines{"spec.json: populations[1]: expected \"mix:0.5\", got \"mix:0.50\""});
}

TEST_F(EvaluationKey, HasAStrideWhereThereAreCrops) {
  const std::string begin = R"({"task": "fake_shapes", "model": "fake_net", "strategy": "fake_own",
    "batch_per_tower": 2, "steps": 1, "evaluation": )";
  EXPECT_EQ(mistakes(begin + R"({"crop": [8, 8], "stride": 0.5}})"), Lines{});
  EXPECT_EQ(
      mistakes(begin + R"({"stride": 0.5}})"),
      Lines{
          "spec.json: evaluation.stride: has no effect without evaluation.crop; give the crops, or leave it "
          "out"});
}

}  // namespace
}  // namespace bnlab
