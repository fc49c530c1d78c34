// What a task labels, its model must answer for.
#include "tests/experiment/spec_files.hpp"

namespace bnlab {
namespace {

class SpecLabelled : public SpecFiles {};

TEST_F(SpecLabelled, AModelMustAnswerForIt) {
  const auto with = [](const std::string& task, const std::string& model) {
    return R"({"task": ")" + task + R"(", "model": ")" + model +
           R"(", "strategy": "fake_own", "batch_per_tower": 1, "steps": 1})";
  };
  EXPECT_EQ(mistakes(with("fake_shapes", "fake_net")), Lines{});
  EXPECT_EQ(mistakes(with("fake_clips", "fake_clip_net")), Lines{});
  EXPECT_EQ(
      mistakes(with("fake_clips", "fake_net")),
      (Lines{
          "spec.json: model: expected a model that answers for clips, as the task \"fake_clips\" asks, got "
          "\"fake_net\", which answers for pixels; there are: fake_clip_net"}));
  EXPECT_EQ(
      mistakes(with("fake_shapes", "fake_clip_net")),
      (Lines{
          "spec.json: model: expected a model that answers for pixels, as the task \"fake_shapes\" asks, got "
          "\"fake_clip_net\", which answers for clips; there are: fake_backbone_net, fake_net"}));
}

}  // namespace
}  // namespace bnlab
