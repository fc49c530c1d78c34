#include "tests/tasks/file_task.hpp"

#ifdef BNLAB_WITH_IMAGES

namespace bnlab::ade20k_test {
namespace {

namespace fs = std::filesystem;

class Ade20kTest : public test::FileTask {
 protected:
  Ade20kTest() : FileTask("ade20k", "ADEChallengeData2016/", {{"crop", {8, 8}}}) {}

  void SetUp() override {
    write("training", "ADE_train_00000001", {0, 1, 150});
    write("training", "ADE_train_00000002", {3, 3});
    write("validation", "ADE_val_00000001", {0, 1, 2, 150});
  }
  void write(const std::string& split, const std::string& name, const std::vector<uint8_t>& ids) const {
    write_image("images/" + split + "/" + name + ".jpg", static_cast<int>(ids.size()));
    write_labels("annotations/" + split + "/" + name + ".png", ids);
  }
};

TEST_F(Ade20kTest, OtherIsVoidAndTheIdsBeginAtOne) {
  const auto ade = task();
  EXPECT_EQ(ade->classes(), 150);
  EXPECT_EQ(ade->training_samples(), 2);
  EXPECT_EQ(ade->test_samples(), 1);
  EXPECT_EQ(stripes(), (std::vector<int64_t>{Task::kVoid, 0, 1, 149}));
  EXPECT_EQ(ade->sort_values("class"), (std::vector<double>{0, 2}));
}

TEST_F(Ade20kTest, WhatIsWrongIsNamed) {
  EXPECT_NAMES(error({{"test_split", "../x"}}, Error::Kind::spec), "task.test_split");
  write("training", "ADE_train_00000002", {3, 151});
  EXPECT_NAMES(error(),
               "ADE_train_00000002.png: expected ids 1 to 150 and 0 (void), got 151 at row 0, column 6");
  fs::remove(file("annotations/training/ADE_train_00000002.png"));
  EXPECT_NAMES(error(), file("annotations/training/ADE_train_00000002.png") + ": missing, the labels of");
  EXPECT_NAMES(error({{"train_split", "none"}}), file("images/none") + ": cannot be listed");
}

}  // namespace
}  // namespace bnlab::ade20k_test

#endif
