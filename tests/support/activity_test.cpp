// What a rank says of itself while it trains: the page that its launcher reads, and the events of a trace.
#include "harness/support/activity.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

namespace bnlab::activity_test {
namespace {

class ActivityPages : public ::testing::Test {
 protected:
  ActivityPages() { Activity::keep_on(&page_); }
  ~ActivityPages() override { Activity::keep_on(nullptr); }

  ActivityPage page_{};
};

TEST_F(ActivityPages, SayWhereARankIs) {
  EXPECT_EQ(activity_text(page_), "is before the first step");
  Activity::begin_step(15);
  Activity::begin_part(ActivityPart::backward);
  EXPECT_EQ(activity_text(page_), "is in backward of step 16");
  {
    const Activity::InCollective gradients("all_reduce", "gradients", 400);
    EXPECT_EQ(activity_text(page_), "waits for gradients in backward of step 16 (all_reduce)");
  }
  Activity::begin_step(16);
  Activity::begin_part(ActivityPart::forward);
  {
    const Activity::AtSite site("decoder1.norm2", "forward");
    const Activity::InCollective statistics("all_gather", "statistics", 40);
    EXPECT_EQ(activity_text(page_), "waits at decoder1.norm2 forward of step 17 (all_gather)");
  }
  EXPECT_EQ(activity_text(page_), "is in forward of step 17");
  Activity::end_step();
  EXPECT_EQ(activity_text(page_), "is between steps, after step 17");
}

TEST_F(ActivityPages, KeepTheCollectiveThatHasFailed) {
  Activity::begin_step(0);
  Activity::begin_part(ActivityPart::forward);
  try {
    const Activity::AtSite site("norm1", "forward");
    const Activity::InCollective statistics("all_reduce", "statistics", 40);
    throw std::runtime_error("lost contact");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(activity_text(page_), "waits at norm1 forward of step 1 (all_reduce)");
}

TEST_F(ActivityPages, OfRanksThatDoTheSameAreToldTogether) {
  Activity::begin_step(16);
  Activity::begin_part(ActivityPart::forward);
  ActivityPage other{};
  other.step = 16;
  other.part = static_cast<uint32_t>(ActivityPart::backward);
  EXPECT_EQ(activities_text({&page_, &page_, &other, &page_}),
            "ranks 0, 1 and 3 are in forward of step 17; rank 2 is in backward of step 16");
  EXPECT_EQ(activities_text({&page_, nullptr}), "rank 0 is in forward of step 17; rank 1 does not answer");
}

TEST_F(ActivityPages, OfTheNextRunSayNothingOfTheLast) {
  Activity::begin_step(0);
  page_.site[0] = 'x';
  Activity::keep_on(&page_);
  EXPECT_EQ(activity_text(page_), "is before the first step");
  EXPECT_EQ(page_.site[0], '\0');
}

TEST_F(ActivityPages, TravelAsBytes) {
  Activity::begin_step(16);
  Activity::begin_part(ActivityPart::backward);
  EXPECT_EQ(activity_text(*unpacked(packed(page_))), activity_text(page_));
  EXPECT_EQ(unpacked("no page"), nullptr);
}

TEST(ActivityEvents, AreNestedAndOnlyOfTheStepsThatAreRecorded) {
  Activity::begin_step(0);
  Activity::begin_part(ActivityPart::forward);
  Activity::end_step();
  Activity::record();
  Activity::begin_step(1);
  Activity::begin_part(ActivityPart::forward);
  {
    const Activity::AtSite site("norm1", "forward");
    const Activity::InCollective statistics("all_gather", "statistics", 40);
  }
  Activity::begin_part(ActivityPart::backward);
  Activity::end_step();
  const std::vector<ActivityEvent> events = Activity::take();
  Activity::begin_step(2);
  Activity::end_step();
  EXPECT_TRUE(Activity::take().empty());
  ASSERT_EQ(events.size(), 5U);
  const std::vector<std::string> names{"step 2", "forward", "norm1 forward", "all_gather", "backward"};
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].name, names[i]);
    EXPECT_LE(events[i].begin_ns, events[i].end_ns);
    EXPECT_LE(events[0].begin_ns, events[i].begin_ns);
    EXPECT_GE(events[0].end_ns, events[i].end_ns);
  }
  EXPECT_LE(events[1].end_ns, events[4].begin_ns);
  EXPECT_EQ(events[3].bytes, 40);
  EXPECT_EQ(events[3].purpose, "statistics");
}

}  // namespace
}  // namespace bnlab::activity_test
