#include "tests/tasks/file_task.hpp"

#ifdef BNLAB_WITH_IMAGES

namespace bnlab::cityscapes_test {
namespace {

namespace fs = std::filesystem;
using Stripes = std::vector<int64_t>;

class CityscapesTest : public test::FileTask {
 protected:
  CityscapesTest() : FileTask("cityscapes", "cityscapes/", {{"crop", {8, 8}}}) {}

  void SetUp() override {
    write("train", "aachen_000000_000019", {7, 8, 26});
    write("train", "bochum_000000_000313", {11, 0, 33});
    write("val", "frankfurt_000000_000294", {7, 3, 33});
    write("val", "lindau_000000_000019", {31, 30, 8});
  }
  std::string image(const std::string& split, const std::string& name) const {
    return "leftImg8bit/" + split + "/" + name.substr(0, name.find('_')) + "/" + name + "_leftImg8bit.png";
  }
  std::string labels(const std::string& split, const std::string& name, const std::string& kind) const {
    return "gtFine/" + split + "/" + name.substr(0, name.find('_')) + "/" + name + "_gtFine_" + kind + ".png";
  }
  // The published files, with the two that are not read.
  void write(const std::string& split, const std::string& name, const std::vector<uint8_t>& ids) const {
    write_image(image(split, name));
    write_labels(labels(split, name, "labelIds"), ids);
    write_labels(labels(split, name, "instanceIds"), {99, 99, 99});
    write_labels(labels(split, name, "color"), {99, 99, 99});
  }
};

TEST_F(CityscapesTest, NineteenOfTheIdsAreClasses) {
  const auto cityscapes = task();
  EXPECT_EQ(cityscapes->classes(), 19);
  EXPECT_EQ(cityscapes->training_samples(), 2);
  EXPECT_EQ(stripes(), (Stripes{0, Task::kVoid, 18}));
  EXPECT_EQ(stripes(Json::object(), 1), (Stripes{16, Task::kVoid, 1}));
}

TEST_F(CityscapesTest, ConvertedLabelsAreClasses) {
  const Json converted = {{"labels", "labelTrainIds"}};
  EXPECT_NAMES(error(converted), "aachen_000000_000019_gtFine_labelTrainIds.png: missing, the labels of");
  for (const auto& [split, name] : {std::pair("train", "aachen_000000_000019"),
                                    {"train", "bochum_000000_000313"},
                                    {"val", "frankfurt_000000_000294"},
                                    {"val", "lindau_000000_000019"}}) {
    write_labels(labels(split, name, "labelTrainIds"), {0, 255, 18});
  }
  EXPECT_EQ(stripes(converted), (Stripes{0, Task::kVoid, 18}));
}

TEST_F(CityscapesTest, CitiesAreScoredApart) {
  const auto cityscapes = task();
  EXPECT_EQ(sort_keys(), (std::vector<std::string>{"city", "brightness", "class"}));
  EXPECT_EQ(cityscapes->sort_values("city"), (std::vector<double>{0, 1}));
  const Examples test = cityscapes->test(0, 2);
  const auto perfect = at::one_hot(test.labels.clamp_min(0), 19).permute({0, 3, 1, 2}).to(at::kFloat);
  const Json metrics = cityscapes->metrics(cityscapes->measure(perfect, test.labels, 0));
  EXPECT_EQ(metrics["groups"].size(), 2u);
  EXPECT_EQ(metrics["groups"]["frankfurt"]["pixel_accuracy"], 1.0);
}

TEST_F(CityscapesTest, WhatIsWrongIsNamed) {
  write("train", "bochum_000000_000313", {11, 34, 33});
  EXPECT_NAMES(error(),
               "bochum_000000_000313_gtFine_labelIds.png: expected ids 7 to 8, 11 to 13, 17, 19 to 28, "
               "31 to 33 and 0 to 6, 9 to 10, 14 to 16, 18, 29 to 30 (void), got 34 at row 0, column 6");
  fs::remove(file(labels("train", "bochum_000000_000313", "labelIds")));
  EXPECT_NAMES(error(),
               file(labels("train", "bochum_000000_000313", "labelIds")) + ": missing, the labels of");
  EXPECT_NAMES(error({{"train_split", "trian"}}), file("leftImg8bit/trian") + ": cannot be listed");
}

}  // namespace
}  // namespace bnlab::cityscapes_test

#endif
