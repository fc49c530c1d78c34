// An unknown key of "shards" is a mistake of the spec. That the declared keys are those of the tasks, make_task.hpp holds for
// every task that a test makes.
#include "harness/components/shard_keys.hpp"

#include "harness/components/registry.hpp"
#include "tests/experiment/spec_files.hpp"

namespace bnlab::shard_keys_test {
namespace {

class ShardKeys : public SpecFiles {
 protected:
  static std::string sharded(const std::string& task, const std::string& more) {
    return R"({"task": )" + task +
           R"(, "model": "unet", "strategy": "sync", "batch_per_tower": 2, "steps": 5, )" + more + "}";
  }
};

TEST_F(ShardKeys, EveryTaskDeclaresItsKeys) {
  for (const auto& [name, about] : registered("task")) {
    EXPECT_TRUE(shard_keys({{"name", name}})) << name << " needs a row in harness/components/shard_keys.cpp";
  }
}

TEST_F(ShardKeys, AnUnknownOneIsToldWithThoseThatThereAre) {
  EXPECT_EQ(
      mistakes(
          sharded(R"("shapes")", R"("matrix": {"shards": ["iid", "sorted:brightnes", "sorted:colour"]})")),
      (Lines{
          "spec.json: matrix.shards[1]: the task \"shapes\" has no key \"brightnes\" to sort by; there are: "
          "class, brightness; did you mean \"sorted:brightness\"?",
          "spec.json: matrix.shards[2]: the task \"shapes\" has no key \"colour\" to sort by; there are: "
          "class, brightness"}));
  EXPECT_EQ(mistakes(sharded(R"("camvid")", R"("shards": "sorted:drive")")), Lines{});
}

TEST_F(ShardKeys, FoldersHaveGroupsWhereTheyAreTold) {
  const std::string task = R"({"name": "folder", "root": "mine", "classes": 3)";
  const std::string by_group = R"("shards": "sorted:group")";
  EXPECT_EQ(mistakes(sharded(task + R"(, "groups": "prefix"})", by_group)), Lines{});
  EXPECT_EQ(
      mistakes(sharded(task + "}", by_group)),
      Lines{"spec.json: shards: the task \"folder\" has no key \"group\" to sort by; there are: brightness, "
            "class"});
}

TEST_F(ShardKeys, WhereTheTaskIsWrongItsKeysAreUnknown) {
  const Lines told = mistakes(sharded(R"("shape")", R"("shards": "sorted:colour")"));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].find("spec.json: task: unknown task"), 0U) << told[0];
}

}  // namespace
}  // namespace bnlab::shard_keys_test
