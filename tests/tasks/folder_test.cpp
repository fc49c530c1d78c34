#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "tests/tasks/make_task.hpp"

namespace bnlab::folder_test {
namespace {

// What is wrong with the options by themselves: what `bnlab plan` says.
std::string mistakes(const Json& changes) {
  Json options = {{"root", "mydata"}, {"classes", 3}};
  options.update(changes);
  const About& about = *find_registered("task", "folder");
  Problems problems;
  const Json resolved = resolve(about.parameters(), options, "task", problems);
  if (problems.empty()) about.check(resolved, {}, problems);
  std::string all;
  for (const auto& [path, message] : problems.found()) all += path + ": " + message + "\n";
  return all;
}

#define EXPECT_NAMES(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(FolderOptions, ClassesAreANumberOrNames) {
  EXPECT_EQ(mistakes({{"classes", 256}}), "");
  EXPECT_EQ(mistakes({{"classes", {"road", "car"}}}), "");
  for (const Json& wrong : {Json(1), Json(257), Json(2.5), Json("road"), Json::array(), Json{"road"},
                            Json{1, 2}, Json{"road", "road"}, Json{"road", ""}}) {
    EXPECT_NAMES(mistakes({{"classes", wrong}}), "classes");
  }
  Problems problems;
  resolve(find_registered("task", "folder")->parameters(), {{"root", "x"}}, "task", problems);
  ASSERT_EQ(problems.found().size(), 1u);
  EXPECT_NAMES(problems.found()[0].second, "an integer in [2, 256] or a list of texts");
}

TEST(FolderOptions, AMappingNamesIdsAndClasses) {
  EXPECT_EQ(mistakes({{"mapping", {{"7", 0}, {"255", 2}, {"other", "void"}}}}), "");
  EXPECT_EQ(mistakes({{"classes", {"road", "car"}}, {"mapping", {{"7", "car"}}}}), "");
  EXPECT_NAMES(mistakes({{"mapping", {{"256", 0}}}}), "mapping.256: expected an id");
  EXPECT_NAMES(mistakes({{"mapping", {{"07", 0}}}}), "mapping.07: expected an id");
  EXPECT_NAMES(mistakes({{"mapping", {{"road", 0}}}}), "mapping.road: expected an id");
  EXPECT_NAMES(mistakes({{"mapping", {{"7", 3}}}}), "mapping.7: expected a class from 0 to 2");
  EXPECT_NAMES(mistakes({{"mapping", {{"7", "car"}}}}), "mapping.7: expected a class");
  EXPECT_NAMES(mistakes({{"test_list", "a.txt"}}), "needs train_list");
}

}  // namespace
}  // namespace bnlab::folder_test

#ifdef BNLAB_WITH_IMAGES

#include "tests/tasks/write_images.hpp"

namespace bnlab::folder_test {
namespace {

namespace fs = std::filesystem;
using test::Picture;
using test::write_jpeg;
using test::write_png;

// Stripes of ids 0, 1, 2, ... `classes` - 1, each as wide as the others; grey values are 40 times the ids.
Picture stripes(int height, int width, int classes, int factor = 1, int channels = 1) {
  Picture picture{height, width, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      picture.values.insert(picture.values.end(), static_cast<size_t>(channels),
                            static_cast<uint8_t>(factor * (x * classes / width)));
    }
  }
  return picture;
}

class FolderTest : public ::testing::Test {
 protected:
  // A pair below mydata: image.jpg and labels.png.
  void write(const std::string& image, const std::string& labels, int height = 12, int width = 18,
             int colour = PNG_COLOR_TYPE_GRAY) const {
    write_jpeg(folder_.path("mydata/" + image + ".jpg"), stripes(height, width, 3, 40, 3));
    write_png(folder_.path("mydata/" + labels + ".png"), stripes(height, width, 3), colour);
  }
  void write_splits(const std::string& image_folder, const std::string& label_folder) const {
    for (const std::string name : {"a", "b", "c"}) write(image_folder + name, label_folder + name);
  }
  std::string file(const std::string& name) const { return folder_.path("mydata/" + name); }

  static Json options(const Json& changes) {
    Json options = {{"root", "mydata"}, {"classes", 3}, {"crop", {8, 10}}};
    options.update(changes);
    return test::resolved_task("folder", options);
  }
  std::unique_ptr<Task> task(const Json& changes = Json::object()) const {
    return Registered<Task>::create(options(changes), {0, folder_.path()});
  }
  static std::vector<std::string> sort_keys(const Json& changes = Json::object()) {
    return facts_of<TaskFacts>(options(changes)).sort_keys(options(changes));
  }
  std::string error(const Json& changes = Json::object(), Error::Kind kind = Error::Kind::data) const {
    try {
      task(changes);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    return "no error";
  }

  test::TemporaryFolder folder_;
};

TEST_F(FolderTest, SplitsMayLieAroundTheFoldersOrInThem) {
  write_splits("train/images/", "train/labels/");
  write("test/images/d", "test/labels/d");
  write_splits("img_dir/train/", "ann_dir/train/");
  write("img_dir/test/d", "ann_dir/test/d");
  for (const Json& changes : {Json::object(), Json{{"images", "img_dir"}, {"labels", "ann_dir"}}}) {
    const auto folder = task(changes);
    EXPECT_EQ(folder->training_samples(), 3);
    EXPECT_EQ(folder->test_samples(), 1);
    EXPECT_EQ(folder->classes(), 3);
    EXPECT_EQ(folder->training({{0, 0}, {2, 1}}).images.sizes(), (std::vector<int64_t>{2, 3, 8, 10}));
    const Examples test = folder->test(0, 1);
    EXPECT_EQ(test.labels.sizes(), (std::vector<int64_t>{1, 12, 18}));
    EXPECT_TRUE(test.labels[0][0].equal(at::arange(18).floor_divide(6)));
  }
}

TEST_F(FolderTest, WithoutATestSplitAShareIsHeldOut) {
  for (int i = 0; i < 10; ++i) write("images/" + std::to_string(i), "labels/" + std::to_string(i));
  EXPECT_EQ(task()->training_samples(), 8);
  EXPECT_EQ(task()->test_samples(), 2);
  EXPECT_EQ(task({{"test_share", 0.5}})->test_samples(), 5);
}

TEST_F(FolderTest, ATestSplitOfAnotherNameIsPointedAt) {
  write_splits("train/images/", "train/labels/");
  write_splits("val/images/", "val/labels/");
  EXPECT_NAMES(error(), "say \"test_split\": \"val\"");
  EXPECT_EQ(task({{"test_split", "val"}})->test_samples(), 3);
}

TEST_F(FolderTest, ImagesOfSplitsOfOtherNamesAreNotPooled) {
  write_splits("images/training/", "labels/training/");
  write_splits("images/test/", "labels/test/");
  EXPECT_NAMES(error(), "there is no split train, but training, test");
  EXPECT_EQ(task({{"train_split", "training"}})->training_samples(), 3);
}

TEST_F(FolderTest, ASplitThatIsAskedForHasToBeThere) {
  write_splits("images/", "labels/");
  EXPECT_NAMES(error({{"train_split", "trian"}}),
               "there is no split trian; leave train_split and test_split out");
  EXPECT_NAMES(error({{"test_split", "val"}}), "there is no split train; leave");
}

TEST_F(FolderTest, ListsChooseTheFiles) {
  write_splits("images/", "labels/");
  write("x/d", "y/e");
  test::write_bytes(file("train.txt"), "images/a.jpg labels/a.png\nx/d.jpg y/e.png\nb\n");
  test::write_bytes(file("test.txt"), "c\n");
  const auto folder = task({{"train_list", "train.txt"}, {"test_list", "test.txt"}});
  EXPECT_EQ(folder->training_samples(), 3);
  EXPECT_EQ(folder->test_samples(), 1);
  EXPECT_EQ(task({{"train_list", "train.txt"}})->test_samples(), 1) << "held out";
}

TEST_F(FolderTest, GroupsAreScoredApartAndHeldOutWhole) {
  for (const std::string name : {"a_1", "a_2", "b_1", "b_2", "c_1", "c_2"}) {
    write("images/" + name, "labels/" + name);
    write("scenes/images/" + name.substr(0, 1) + "/" + name,
          "scenes/labels/" + name.substr(0, 1) + "/" + name);
  }
  for (const Json& changes :
       {Json{{"groups", "prefix"}}, Json{{"groups", "folder"}, {"root", "mydata/scenes"}}}) {
    Json half = changes;
    half["test_share"] = 0.5;
    const auto folder = task(half);
    ASSERT_EQ(folder->test_samples(), 4) << "two groups of two";
    EXPECT_EQ(sort_keys(half), (std::vector<std::string>{"group", "brightness", "class"}));
    const Examples test = folder->test(0, 4);
    const auto perfect = at::one_hot(test.labels, 3).permute({0, 3, 1, 2}).to(at::kFloat);
    EXPECT_EQ(folder->metrics(folder->measure(perfect, test.labels, 0))["groups"].size(), 2u);
  }
  EXPECT_EQ(sort_keys(), (std::vector<std::string>{"brightness", "class"}));
}

using Sizes = std::vector<std::array<int64_t, 2>>;

Sizes sizes_of(const Task& task) {
  Sizes sizes;
  for (const OneSize& one : task.test_sizes())
    sizes.insert(sizes.end(), static_cast<size_t>(one.samples), one.size);
  return sizes;
}

TEST_F(FolderTest, TestImagesHaveTheirOwnSizesThoseOfOneSizeTogether) {
  write_splits("train/images/", "train/labels/");
  write("test/images/a", "test/labels/a", 12, 18);
  write("test/images/b", "test/labels/b", 16, 9);
  write("test/images/c", "test/labels/c", 12, 18);
  write("test/images/d", "test/labels/d", 12, 9);
  const auto folder = task();
  EXPECT_EQ(sizes_of(*folder), (Sizes{{12, 9}, {12, 18}, {12, 18}, {16, 9}}));
  EXPECT_EQ(folder->test_sizes().size(), 3U);
  EXPECT_EQ(folder->test(1, 2).images.sizes(), (std::vector<int64_t>{2, 3, 12, 18}));
  EXPECT_EQ(folder->test(3, 0).images.sizes(), (std::vector<int64_t>{0, 3, 16, 9})) << "none, of its size";
  EXPECT_FALSE(folder->test(3, 1).labels.eq(Task::kVoid).any().item<bool>());
  EXPECT_THROW(folder->test(0, 2), std::logic_error);
}

// By their mirror images, and no further than `test_multiple` and the model ask; the labels there are void.
TEST_F(FolderTest, TestImagesAreContinuedByTheirMirrorImages) {
  write_splits("train/images/", "train/labels/");
  write("test/images/a", "test/labels/a", 12, 18);
  write("test/images/b", "test/labels/b", 16, 9);
  const auto own = task(), padded = task({{"test_multiple", 8}});
  EXPECT_EQ(sizes_of(*padded), (Sizes{{16, 24}, {16, 16}}));
  const Examples test = padded->test(0, 1), whole = own->test(0, 1);
  EXPECT_TRUE(test.images.slice(2, 0, 12).slice(3, 0, 18).equal(whole.images));
  EXPECT_TRUE(test.images.select(3, 18).equal(test.images.select(3, 16)));
  EXPECT_TRUE(test.images.select(3, 23).equal(test.images.select(3, 11)));
  EXPECT_TRUE(test.images.select(2, 15).equal(test.images.select(2, 7)));
  const auto known = test.labels.ne(Task::kVoid);
  EXPECT_EQ(known.sum().item<int64_t>(), 12 * 18);
  EXPECT_TRUE(known[0].slice(0, 0, 12).slice(1, 0, 18).all().item<bool>());

  const auto for_model = [&](int64_t multiple) {
    return Registered<Task>::create(options(Json::object()), {0, folder_.path(), multiple});
  };
  EXPECT_EQ(sizes_of(*for_model(4)), (Sizes{{12, 20}, {16, 12}}));
  EXPECT_EQ(sizes_of(*for_model(1)), sizes_of(*own));
}

TEST_F(FolderTest, TestImagesFitIntoAGivenSize) {
  write_splits("train/images/", "train/labels/");
  write("test/images/a", "test/labels/a", 12, 18);
  write("test/images/b", "test/labels/b", 8, 9);
  const auto folder = task({{"test_size", {16, 9}}});
  EXPECT_EQ(sizes_of(*folder), (Sizes{{16, 9}, {16, 9}}));
  const auto known = [&](int64_t sample) {
    return folder->test(sample, 1).labels.ne(Task::kVoid).sum().item<int64_t>();
  };
  EXPECT_EQ(known(0), 6 * 9) << "reduced to half";
  EXPECT_EQ(known(1), 8 * 9) << "not enlarged";
}

TEST_F(FolderTest, PaletteAndPackedLabelsAreIndices) {
  for (const std::string name : {"a", "b", "c", "d"}) write("train/images/" + name, "train/labels/" + name);
  write("test/images/a", "test/labels/a", 12, 18, PNG_COLOR_TYPE_PALETTE);
  write("test/images/b", "test/labels/b", 4, 4);
  write("test/images/c", "test/labels/c", 4, 8);
  // Rows of 4 pixels of 2 bits, 0 1 2 1, and of 8 pixels of 1 bit, 0 0 1 1 0 1 0 1.
  write_png(file("test/labels/b.png"), {4, 4, std::vector<uint8_t>(4, 0b00011001)}, PNG_COLOR_TYPE_GRAY, 2);
  write_png(file("test/labels/c.png"), {4, 8, std::vector<uint8_t>(4, 0b00110101)}, PNG_COLOR_TYPE_GRAY, 1);
  const auto folder = task();
  const auto row = [&](int64_t sample) { return folder->test(sample, 1).labels[0][3]; };
  EXPECT_TRUE(row(0).equal(at::tensor({0, 1, 2, 1}, at::kLong)));
  EXPECT_TRUE(row(1).equal(at::tensor({0, 0, 1, 1, 0, 1, 0, 1}, at::kLong)));
  EXPECT_TRUE(row(2).equal(at::arange(18).floor_divide(6)));
}

TEST_F(FolderTest, MappingAndVoidSayWhatIdsMean) {
  write_splits("train/images/", "train/labels/");
  write("test/images/d", "test/labels/d");
  const auto labels = [&](const Json& changes) { return task(changes)->test(0, 1).labels[0][0]; };
  const auto ids = at::arange(18).floor_divide(6);
  EXPECT_TRUE(labels({{"void", {1}}}).equal(ids.masked_fill(ids.eq(1), Task::kVoid)));
  const Json mapped = {{"classes", {"sky", "road"}},
                       {"mapping", {{"2", "sky"}, {"0", 1}, {"other", "void"}}}};
  EXPECT_TRUE(labels(mapped).equal(at::tensor({1, -1, 0}, at::kLong).repeat_interleave(6)));
}

TEST_F(FolderTest, ForeignIdsAreNamedWithTheirCure) {
  write_splits("images/", "labels/");
  const std::string text = error({{"classes", 2}});
  EXPECT_NAMES(text,
               file("labels/a.png") + ": expected ids 0 to 1 and 255 (void), got 2 at row 0, column 12");
  EXPECT_NAMES(text, "name the id in `void`");
  EXPECT_NAMES(error({{"mapping", {{"0", 0}, {"1", 1}}}}), "expected ids 0 to 1 and 255 (void), got 2");
}

TEST_F(FolderTest, ColourLabelsAreRefused) {
  write_splits("images/", "labels/");
  write_png(file("labels/b.png"), stripes(12, 18, 3, 40, 3), PNG_COLOR_TYPE_RGB);
  const std::string text = error();
  EXPECT_NAMES(text, file("labels/b.png"));
  EXPECT_NAMES(text, "one class id per pixel");
}

TEST_F(FolderTest, AMaskOf0And255IsPointedAt) {
  for (const std::string name : {"a", "b"}) {
    write("images/" + name, "labels/" + name);
    write_png(file("labels/" + name + ".png"), stripes(12, 18, 2, 255), PNG_COLOR_TYPE_GRAY);
  }
  EXPECT_NAMES(error({{"classes", 2}}), "show class 0 and no other; a mask of 0 and 255 needs");
  const Json cure = {{"classes", 2}, {"void", Json::array()}, {"mapping", {{"0", 0}, {"255", 1}}}};
  EXPECT_EQ(error(cure), "no error");
}

TEST_F(FolderTest, WhatIsMissingIsNamed) {
  EXPECT_NAMES(error(), "mydata: no such folder; --data names the folder around it");
  const std::string images = file("images");  // makes mydata
  EXPECT_NAMES(error(), images + ": cannot be listed");
  write_splits("images/", "labels/");
  fs::remove(file("labels/b.png"));
  EXPECT_NAMES(error(), file("labels/b.png") + ": missing, the labels of " + file("images/b.jpg"));
  EXPECT_NAMES(error(), "label_suffix");
}

TEST_F(FolderTest, NothingOutsideTheDataFolderIsRead) {
  write_splits("images/", "labels/");
  for (const char* key : {"root", "images", "labels", "train_split", "test_split", "train_list"})
    for (const char* path : {"../mydata/images", "/etc"})
      EXPECT_NAMES(error({{key, path}}, Error::Kind::spec), std::string("task.") + key);
}

}  // namespace
}  // namespace bnlab::folder_test

#endif
