// What tasks tell before they read their data: their files, all that they read and nothing else of the data
// folder, and the keys of "shards", of which an unknown one is a mistake of the spec.
#include "harness/tasks/task_facts.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "harness/support/error.hpp"
#include "tests/experiment/spec_files.hpp"

namespace bnlab::task_files_test {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

class TaskFilesTest : public ::testing::Test {
 protected:
  TaskFilesTest() : folder_(fs::temp_directory_path() / ("bnlab_task_files_" + std::to_string(getpid()))) {}
  ~TaskFilesTest() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text = "") const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  Names names(const std::string& task, Json given = Json::object()) const {
    given["name"] = task;
    Problems problems;
    const Json options = resolve({component_key("task")}, {{"task", given}}, "", problems)["task"];
    EXPECT_TRUE(problems.empty());
    Names names;
    for (const std::string& file : files_of_task(options, folder_.string()))
      names.insert(fs::path(file).lexically_relative(folder_).string());
    return names;
  }

  fs::path folder_;
};

// A task whose options name a folder cannot be registered unless they tell its files.
struct Rootless {};
struct RootAlone {
  std::string root;
};
struct RootAndFiles : RootAlone {
  Paths files(const std::string& data_dir) const { return {data_dir + root}; }
};
static_assert(TellsItsFiles<Rootless>);
static_assert(!TellsItsFiles<RootAlone>);
static_assert(TellsItsFiles<RootAndFiles>);

TEST_F(TaskFilesTest, EveryTaskWithARootTellsItsFiles) {
  int with_root = 0;
  for (const auto& [name, about] : registered("task")) {
    const bool root =
        std::ranges::any_of(about.parameters(), [](const Parameter& p) { return p.name == "root"; });
    EXPECT_EQ(reads_files({{"name", name}}), root || name == "nuclei") << name;
    with_root += root;
  }
  EXPECT_GE(with_root, 8);
}

TEST_F(TaskFilesTest, PairsOfTheSplitsAlone) {
  for (const char* split : {"train", "val", "test"}) {
    write(std::string("camvid/") + split + "/images/A_1.jpg");
    write(std::string("camvid/") + split + "/labels/A_1.png");
  }
  EXPECT_EQ(names("camvid"), (Names{"camvid/train/images/A_1.jpg", "camvid/train/labels/A_1.png",
                                    "camvid/test/images/A_1.jpg", "camvid/test/labels/A_1.png"}));
  fs::remove(folder_ / "camvid/test/labels/A_1.png");
  EXPECT_THROW(names("camvid"), Error);
}

TEST_F(TaskFilesTest, ListsAreFilesToo) {
  write("VOCdevkit/VOC2012/JPEGImages/a.jpg");
  write("VOCdevkit/VOC2012/JPEGImages/b.jpg");
  write("VOCdevkit/VOC2012/SegmentationClass/a.png");
  write("VOCdevkit/VOC2012/SegmentationClass/b.png");
  write("VOCdevkit/VOC2012/ImageSets/Segmentation/train.txt", "a\n");
  write("VOCdevkit/VOC2012/ImageSets/Segmentation/val.txt", "b\n");
  const Names voc = names("voc", {{"train_split", "train"}});
  EXPECT_EQ(voc.size(), 6U);
  EXPECT_EQ(voc.count("VOCdevkit/VOC2012/ImageSets/Segmentation/val.txt"), 1U);
  write("clips/c/img_00001.jpg");
  write("clips/train.txt", "c 1 0\n");
  write("clips/test.txt", "c 1 0\n");
  EXPECT_EQ(names("frames", {{"root", "clips"}, {"frames", 1}}),
            (Names{"clips/c/img_00001.jpg", "clips/train.txt", "clips/test.txt"}));
}

TEST_F(TaskFilesTest, FoldersOfClassesAndBinaryFiles) {
  write("things/train/cat/1.jpg");
  write("things/train/dog/1.png");
  write("things/val/dog/2.png");
  EXPECT_EQ(names("image_folder", {{"root", "things"}}),
            (Names{"things/train/cat/1.jpg", "things/train/dog/1.png", "things/val/dog/2.png"}));
  EXPECT_EQ(names("cifar100"), (Names{"cifar-100-binary/train.bin", "cifar-100-binary/test.bin"}));
  EXPECT_EQ(names("cifar10").size(), 6U);
}

// Their names count from the folder that they came with, wherever that is, and no data folder is needed.
TEST_F(TaskFilesTest, NucleiComeWithTheProgram) {
  Problems problems;
  const Json task = resolve({component_key("task")}, {{"task", "nuclei"}}, "", problems)["task"];
  Names names;
  for (const std::string& file : files_of_task(task, ""))
    names.insert(fs::path(file).lexically_relative(folder_of_files(task, "")).generic_string());
  EXPECT_EQ(names.size(), 2 * 1042 + 1U);
  EXPECT_EQ(names.count("nuclei/index.csv"), 1U);
  EXPECT_EQ(names.count("nuclei/test/labels/003cee89357d_0.png"), 1U);
  EXPECT_EQ(folder_of_files({{"name", "shapes"}}, "data"), "data");
}

TEST_F(TaskFilesTest, WithoutADataFolderTheCureIsTold) {
  folder_ = "";
  try {
    names("camvid");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("say --data DIR"), std::string::npos) << error.what();
  }
}

class ShardKeys : public SpecFiles {
 protected:
  static std::string sharded(const std::string& task, const std::string& more) {
    return R"({"task": )" + task +
           R"(, "model": "unet", "strategy": "sync", "batch_per_tower": 2, "steps": 5, )" + more + "}";
  }
};

TEST_F(ShardKeys, EveryTaskHasSome) {
  for (const std::string& name : registered_names("task"))
    EXPECT_FALSE(facts_of<TaskFacts>({{"name", name}}).sort_keys({{"name", name}}).empty()) << name;
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
}  // namespace bnlab::task_files_test
