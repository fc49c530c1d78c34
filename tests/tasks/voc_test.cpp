#include "tests/tasks/file_task.hpp"

#ifdef BNLAB_WITH_IMAGES

namespace bnlab::voc_test {
namespace {

namespace fs = std::filesystem;
using Stripes = std::vector<int64_t>;

class VocTest : public test::FileTask {
 protected:
  VocTest() : FileTask("voc", "VOCdevkit/VOC2012/", {{"crop", {8, 8}}}) {}

  // Palette PNGs with background, a train and void; and the added grey ones, with a dog in place of the
  // train.
  void SetUp() override {
    for (const std::string name : {"2007_000032", "2007_000039", "2007_000063"}) {
      write_image("JPEGImages/" + name + ".jpg");
      write_labels("SegmentationClass/" + name + ".png", {0, 19, 255}, PNG_COLOR_TYPE_PALETTE);
      write_labels("SegmentationClassAug/" + name + ".png", {0, 12, 255});
    }
    write_image("JPEGImages/2008_000001.jpg");
    write_labels("SegmentationClassAug/2008_000001.png", {0, 12, 12});
    write_list("train", "2007_000032\n2007_000039\n");
    write_list("trainaug", "2007_000032\n2007_000039\n2008_000001\n");
    write_list("val", "2007_000063\n");
  }
  void write_list(const std::string& name, const std::string& lines) const {
    test::write_bytes(file("ImageSets/Segmentation/" + name + ".txt"), lines);
  }
};

TEST_F(VocTest, ListsChooseImagesAndTheAddedLabels) {
  const auto voc = task();
  EXPECT_EQ(voc->classes(), 21);
  EXPECT_EQ(voc->training_samples(), 3);
  EXPECT_EQ(voc->test_samples(), 1);
  EXPECT_EQ(voc->sort_values("class"), (std::vector<double>{0, 0, 12})) << "in the order of the list";
  EXPECT_EQ(stripes(), (Stripes{0, 19, Task::kVoid}));
  write_list("other_aug", "2007_000063\n");
  EXPECT_EQ(stripes({{"test_split", "other_aug"}}), (Stripes{0, 12, Task::kVoid}));
  EXPECT_EQ(task({{"train_split", "train"}})->training_samples(), 2);
}

TEST_F(VocTest, TheOtherFormsOfTheAddedListAreRead) {
  fs::rename(file("ImageSets/Segmentation/trainaug.txt"), file("ImageSets/Segmentation/train_aug.txt"));
  EXPECT_EQ(task()->training_samples(), 3);
  write_list("trainaug", "/JPEGImages/2008_000001.jpg /SegmentationClassAug/2008_000001.png\n");
  EXPECT_EQ(task()->training_samples(), 1);
}

TEST_F(VocTest, WhatIsWrongIsNamed) {
  fs::remove(file("ImageSets/Segmentation/trainaug.txt"));
  EXPECT_NAMES(error(), file("ImageSets/Segmentation/trainaug.txt") + ": does not exist; name a list");
  write_list("trainaug", "2008_000001\n2007_000063\n");
  EXPECT_NAMES(error(),
               file("JPEGImages/2007_000063.jpg") + ": is in the training list and in the test list");
  write_list("trainaug", "2008_000001\n2008_000002\n");
  EXPECT_NAMES(error(), "trainaug.txt, line 2: ");
  write_list("trainaug", "2008_000001\n");
  fs::remove(file("SegmentationClassAug/2008_000001.png"));
  EXPECT_NAMES(error(), file("SegmentationClassAug/2008_000001.png") + " does not exist");
  write_labels("SegmentationClassAug/2008_000001.png", {0, 21, 1});
  EXPECT_NAMES(error(), "2008_000001.png: expected ids 0 to 20 and 255 (void), got 21 at row 0, column 6");
  EXPECT_NAMES(error({{"train_split", "../val"}}, Error::Kind::spec), "task.train_split");
}

}  // namespace
}  // namespace bnlab::voc_test

#endif
