// What `bnlab panel` says.
#include "harness/numerics/panel.hpp"
#include "tests/cli/called.hpp"

namespace bnlab {
namespace {

using test::Answer;
using test::call;
using test::has;

class PanelCommand : public ::testing::Test {
 protected:
  ~PanelCommand() override { ::unsetenv("FAKE_PANEL"); }
  static void change(const char* entry) { ::setenv("FAKE_PANEL", entry, 1); }
};

TEST_F(PanelCommand, EndsWellWhereAllComputeWhatIsCommitted) {
  const Answer answer = call({"panel"});
  EXPECT_EQ(answer.code, exit_code::kOk);
  const std::string all = std::to_string(panel().size());
  EXPECT_TRUE(has(answer.err, all + " of " + all)) << answer.err;
}

TEST_F(PanelCommand, NamesWhatComputesOtherwise) {
  change("sync");
  const Answer answer = call({"panel", "base", "sync"});
  EXPECT_EQ(answer.code, exit_code::kFailed);
  EXPECT_TRUE(has(answer.out, "base: ok\nsync: weights is 1000000000.0, ")) << answer.out;
  EXPECT_TRUE(has(answer.err, "1 of 2")) << answer.err;
}

TEST_F(PanelCommand, UnknownEntriesAreRefusedWithTheNearest) {
  const Answer answer = call({"panel", "sink"});
  EXPECT_EQ(answer.code, exit_code::kUsage);
  EXPECT_TRUE(has(answer.err, "sync")) << answer.err;
}

}  // namespace
}  // namespace bnlab
