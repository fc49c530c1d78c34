// Common mistakes in data, each told with its cure before anything starts, and all of them together.
#include <gtest/gtest.h>

#include <cstdlib>

#include "harness/support/error.hpp"
#include "tests/tasks/file_task.hpp"

#ifdef BNLAB_WITH_IMAGES

namespace bnlab::mistakes_in_data_test {
namespace {

using test::Picture;

// Of 8x8 pixels.
std::string cmyk_jpeg() {
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &bytes, &size);
  encoder.image_width = encoder.image_height = 8;
  encoder.input_components = 4;
  encoder.in_color_space = JCS_CMYK;
  jpeg_set_defaults(&encoder);
  jpeg_start_compress(&encoder, TRUE);
  std::vector<JSAMPLE> row(8 * 4, 100);
  while (encoder.next_scanline < encoder.image_height) {
    JSAMPLE* line = row.data();
    jpeg_write_scanlines(&encoder, &line, 1);
  }
  jpeg_finish_compress(&encoder);
  const std::string all(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&encoder);
  std::free(bytes);
  return all;
}

class MistakesInData : public test::FileTask {
 protected:
  MistakesInData() : FileTask("folder", "mydata/", {{"root", "mydata"}, {"classes", 3}}) {
    for (const std::string name : {"a", "b", "c", "d"}) write_pair(name);
  }

  void write_pair(const std::string& name, const std::vector<uint8_t>& ids = {0, 1, 2}) const {
    const std::string split = name == "d" ? "test" : "train";
    write_image(split + "/images/" + name + ".jpg", static_cast<int>(ids.size()));
    write_labels(split + "/labels/" + name + ".png", ids);
  }

  DataReport look(const Json& changes = Json::object()) const {
    Json options = {{"root", "mydata"}, {"classes", 3}};
    options.update(changes);
    return check_of_task(test::resolved_task("folder", options), folder_.path())->look();
  }
  std::string faults(const Json& changes = Json::object()) const {
    return text_of_faults(look(changes).faults);
  }
  std::string facts(const Json& changes = Json::object()) const { return joined(look(changes).facts, "\n"); }

  std::string photograph(const std::string& name = "b") const {
    return file("train/images/" + name + ".jpg");
  }
  std::string label_map(const std::string& name = "b") const { return file("train/labels/" + name + ".png"); }
  static Picture grey(int channels) {
    return {kHeight, 3 * kStripe,
            std::vector<uint8_t>(static_cast<size_t>(kHeight * 3 * kStripe * channels), 7)};
  }
};

TEST_F(MistakesInData, NoneIsFoundInGoodData) {
  const DataReport report = look();
  EXPECT_TRUE(report.faults.empty()) << text_of_faults(report.faults);
  EXPECT_TRUE(report.facts.empty()) << joined(report.facts);
  EXPECT_EQ(report.training_samples, 3);
}

TEST_F(MistakesInData, OtherFormatsAreNamedWithTheCommandThatConvertsThem) {
  const std::pair<std::string, std::string> formats[] = {{std::string("II*\0\0\0\0\0", 8), "a TIFF file"},
                                                         {"RIFF....WEBPVP8 ", "a WebP file"},
                                                         {"GIF89a", "a GIF file"},
                                                         {"BM......", "a BMP file"},
                                                         {"....ftypavif", "an AVIF file"}};
  for (const auto& [bytes, name] : formats) {
    test::write_bytes(photograph(), bytes);
    EXPECT_NAMES(faults(), photograph() + ": expected a JPEG or PNG of 8 bits, grey or RGB, got " + name);
    EXPECT_NAMES(faults(), "scripts/convert_images.py " + file("train/images"));
  }
  test::write_bytes(photograph(), "....ftypheic");
  EXPECT_NAMES(faults(), "got a HEIC file; export all of them as JPEG");
}

TEST_F(MistakesInData, WhatIsReadInAnotherWayIsTold) {
  std::filesystem::remove(photograph());
  write_png(file("train/images/b.png"), grey(2), PNG_COLOR_TYPE_GRAY, 16);
  EXPECT_NAMES(facts(), "1 of 4 photographs have 16 bits per value, but none above a sixteenth");
  EXPECT_NAMES(facts(), "(" + file("train/images/b.png") + ")");
  std::string bytes = "\xff\xd8 twice";
  std::ifstream in(photograph("c"), std::ios::binary);
  bytes += std::string{std::istreambuf_iterator<char>(in), {}}.substr(2);
  test::write_bytes(photograph("c"), bytes);
  EXPECT_NAMES(facts(), "1 of 4 photographs make the decoder warn of what costs no pixel: ");
}

TEST_F(MistakesInData, LabelsThatAreNoIdsAreNamedWithTheCommandThatMakesThem) {
  const std::string train = file("train/labels"), test = file("test/labels");
  const std::string cure = "bnlab labels " + train + " " + train + "_ids " + test + " " + test +
                           "_ids, and this takes them: \"labels\": \"labels_ids\"";
  for (const auto& [colour, channels, depth, got] :
       {std::tuple(PNG_COLOR_TYPE_RGB, 3, 8, "a colour image"),
        {PNG_COLOR_TYPE_RGB_ALPHA, 4, 8, "a colour image"},
        {PNG_COLOR_TYPE_GRAY_ALPHA, 2, 8, "grey with transparency"}}) {
    write_png(label_map(), grey(channels), colour, depth);
    EXPECT_NAMES(faults(), got);
    EXPECT_NAMES(faults(), cure);
  }
}

TEST_F(MistakesInData, LabelsSavedAsJpegAreNamed) {
  test::write_jpeg(label_map(), grey(3));
  EXPECT_NAMES(faults(), "expected labels as PNG");
}

TEST_F(MistakesInData, TruncatedFilesAreNamed) {
  test::truncate(photograph(), 0.7);
  test::truncate(label_map("c"), 0.7);
  EXPECT_NAMES(faults(), "2 of kind \"files that cannot be read\"");
  EXPECT_NAMES(faults(), photograph());
  EXPECT_NAMES(faults(), label_map("c"));
}

TEST_F(MistakesInData, OtherSizesAndForeignIdsAreNamed) {
  write_labels("train/labels/a.png", {0, 1});
  write_labels("train/labels/b.png", {0, 1, 9});
  EXPECT_NAMES(faults(), label_map("a") + ": expected the size of its image, 12x18, got 12x12");
  EXPECT_NAMES(faults(), label_map("b") + ": expected ids 0 to 2 and 255 (void), got 9");
}

TEST_F(MistakesInData, PairsThatAreNotWholeAreNamed) {
  std::filesystem::remove(label_map());
  std::filesystem::remove(photograph("c"));
  test::write_bytes(file("train/images/c.tif"), "x");
  EXPECT_NAMES(faults(), label_map() + ": missing, the labels of " + photograph());
  EXPECT_NAMES(faults(), "c.tif is not read: convert all of them");
}

TEST_F(MistakesInData, PolygonsInJsonAreNamedWithTheWay) {
  std::filesystem::remove(label_map());
  test::write_bytes(file("train/labels/instances.json"), "{}");
  EXPECT_NAMES(faults(), "scripts/coco_labels.py " + file("train/labels/instances.json") + " " +
                             file("train/labels_ids"));
}

TEST_F(MistakesInData, CmykPhotographsAreNamed) {
  test::write_bytes(photograph(), cmyk_jpeg());
  EXPECT_NAMES(faults(), photograph() + ": expected a JPEG or PNG of 8 bits, grey or RGB, got CMYK");
}

TEST_F(MistakesInData, LabelsOfThePhotographAsItIsStoredAreNamed) {
  test::add_exif(photograph(), test::exif_data(6));
  EXPECT_NAMES(faults(), "its EXIF orientation 6 turns it");
}

// Of every kind at least one is shown, twenty in all, and all are counted.
TEST_F(MistakesInData, AllAreToldTogetherInBothSplits) {
  for (int i = 0; i < 30; ++i) write_pair("m" + std::to_string(i), {0, 1, 9});
  test::truncate(photograph(), 0.5);
  test::write_bytes(photograph("c"), "GIF89a");
  write_labels("test/labels/d.png", {0, 1});
  const std::string text = faults();
  EXPECT_NAMES(text, "30 of kind \"foreign label ids\"");
  EXPECT_NAMES(text, "files that cannot be read");
  EXPECT_NAMES(text, "photographs to convert");
  EXPECT_NAMES(text, file("test/labels/d.png"));
  EXPECT_NAMES(text, "more");
  const auto lines = std::ranges::count(text, '\n') + 1;
  EXPECT_EQ(lines, 20 + 4 + 1) << text << "\nof four kinds, one of which is cut short";
}

TEST_F(MistakesInData, ClassesThatNoLabelHasAreTold) {
  EXPECT_NAMES(facts({{"classes", {"sky", "road", "car", "tree", "sign"}}}),
               "2 of 5 classes occur in no label of the training split: tree, sign; nothing teaches them");
  write_labels("test/labels/d.png", {0, 0, 2});
  EXPECT_NAMES(facts(),
               "1 of 3 classes occur in no label of the test split: 1; means over classes leave them out");
}

TEST_F(MistakesInData, MasksOf0And255AreNamedWithTheirCure) {
  for (const std::string name : {"a", "b", "c", "d"}) write_pair(name, {0, 255, 0, 255});
  EXPECT_NE(faults({{"classes", 2}}).find("show class 0 and no other; a mask of 0 and 255 needs"),
            std::string::npos)
      << faults({{"classes", 2}});
  const Json cure = {{"classes", 2}, {"void", Json::array()}, {"mapping", {{"0", 0}, {"255", 1}}}};
  EXPECT_EQ(faults(cure), "");
  EXPECT_EQ(stripes(cure), (std::vector<int64_t>{0, 1, 0, 1}));
}

TEST_F(MistakesInData, IdsThatAreNothingButLinesAreTold) {
  Picture lines{kHeight, 3 * kStripe, {}};
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < 3 * kStripe; ++x)
      lines.values.push_back(x % kStripe < 2 ? 0 : x / kStripe < 1 ? 1 : 2);
  for (const char* name : {"a", "b", "c"}) write_png(label_map(name), lines, PNG_COLOR_TYPE_GRAY);
  EXPECT_NAMES(facts(), "id 0 is the class 0, but is nowhere more than 4 pixels wide");
  const Json cure = {{"mapping", {{"0", "void"}, {"1", 1}, {"2", 2}}}};
  EXPECT_EQ(facts(cure).find("pixels wide"), std::string::npos) << facts(cure);
}

TEST_F(MistakesInData, TestImagesThatTrainAreTold) {
  EXPECT_NAMES(facts({{"test_split", "train"}}), "3 of the 3 test images are training images, too");
}

TEST_F(MistakesInData, TurnedPhotographsAreCounted) {
  test::add_exif(photograph(), test::exif_data(3));
  EXPECT_NAMES(facts(), "1 of 4 photographs are turned upright by their EXIF orientation");
}

}  // namespace
}  // namespace bnlab::mistakes_in_data_test

#endif
