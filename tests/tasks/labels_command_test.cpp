// bnlab labels, typed as its own output says.
#include <gtest/gtest.h>

#include <sstream>

#include "harness/tasks/images/image_file.hpp"
#include "tests/cli/called.hpp"

#ifdef BNLAB_WITH_IMAGES

#include "tests/tasks/write_images.hpp"

namespace bnlab::labels_command_test {
namespace {

using test::Answer;
using test::call;
using test::has;

class LabelsCommand : public ::testing::Test {
 protected:
  std::string from() const { return folder_.path("labels"); }
  std::string to() const { return folder_.path("ids"); }
  std::string write(const std::string& name, const std::vector<uint8_t>& values, int colour,
                    int depth = 8) const {
    const int width = 4;
    test::write_png(folder_.path("labels/" + name), {1, width, values}, colour, depth);
    return folder_.path("labels/" + name);
  }
  std::vector<uint8_t> ids(const std::string& name) const { return read_label_ids(to() + "/" + name).values; }
  // The command in the last line of what was printed, as words of a shell without blanks in names.
  static std::vector<std::string> command_in(const std::string& out) {
    std::istringstream line(out.substr(out.rfind("bnlab labels") + std::string("bnlab ").size()));
    std::vector<std::string> words;
    for (std::string word; line >> word;) {
      std::erase(word, '\'');
      words.push_back(word);
    }
    return words;
  }

  test::TemporaryFolder folder_;
};

TEST_F(LabelsCommand, ShowsTheColoursAndTheCommandThatMakesIds) {
  write("a.png", {9, 0, 0, 9, 0, 0, 0, 8, 0, 9, 0, 0}, PNG_COLOR_TYPE_RGB);
  write("town/b.png", {0, 8, 0, 9, 9, 9, 9, 0, 0, 0, 8, 0}, PNG_COLOR_TYPE_RGB);
  const Answer shown = call({"labels", from(), to()});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_TRUE(has(shown.out, "090000")) << shown.out;
  const auto command = command_in(shown.out);
  ASSERT_EQ(command.size(), 5U) << shown.out;
  EXPECT_EQ(command.back(), "090000=0,000800=1,090909=2");
  EXPECT_EQ(call(command).code, 0);
  EXPECT_EQ(ids("a.png"), (std::vector<uint8_t>{0, 0, 1, 0}));
  EXPECT_EQ(ids("town/b.png"), (std::vector<uint8_t>{1, 2, 0, 1}));
}

TEST_F(LabelsCommand, IdsStayWhateverTheirColoursAndDepth) {
  write("palette.png", {1, 2, 0, 255}, PNG_COLOR_TYPE_PALETTE);
  write("packed.png", {0b01'10'00'11}, PNG_COLOR_TYPE_PALETTE, 2);
  write("grey.png", {1, 2, 0, 255}, PNG_COLOR_TYPE_GRAY);
  write("alpha.png", {1, 255, 2, 255, 0, 255, 255, 9}, PNG_COLOR_TYPE_GRAY_ALPHA);
  write("deep.png", {0, 1, 0, 2, 0, 0, 0, 255}, PNG_COLOR_TYPE_GRAY, 16);
  write("deep_alpha.png", {0, 1, 9, 9, 0, 2, 9, 9, 0, 0, 9, 9, 0, 255, 9, 9}, PNG_COLOR_TYPE_GRAY_ALPHA, 16);
  const Answer answer = call({"labels", from(), to()});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(has(answer.err, "6 label maps written")) << answer.err;
  EXPECT_TRUE(has(answer.err, "3 files with ids of 16 bits or with transparency")) << answer.err;
  EXPECT_TRUE(has(answer.err, "3 files with ids, grey or palette: as they are")) << answer.err;
  for (const char* name : {"palette.png", "grey.png", "alpha.png", "deep.png", "deep_alpha.png"})
    EXPECT_EQ(ids(name), (std::vector<uint8_t>{1, 2, 0, 255})) << name;
  EXPECT_EQ(ids("packed.png"), (std::vector<uint8_t>{1, 2, 0, 3}));
  const std::string large = write("deep.png", {0, 1, 1, 2, 0, 0, 0, 255}, PNG_COLOR_TYPE_GRAY, 16);
  EXPECT_TRUE(
      has(call({"labels", from(), to()}).err, large + ": expected 16-bit ids of at most 255, got 258"));
}

TEST_F(LabelsCommand, GreyValuesOfColourFilesAreIds) {
  write("deep.png", {0, 1, 0, 2, 0, 0, 0, 255}, PNG_COLOR_TYPE_GRAY, 16);
  write("rgb.png", {1, 1, 1, 2, 2, 2, 0, 0, 0, 255, 255, 255}, PNG_COLOR_TYPE_RGB);
  const auto command = command_in(call({"labels", from(), to()}).out);
  EXPECT_EQ(command.back(), "grey");
  EXPECT_EQ(call(command).code, 0);
  for (const char* name : {"deep.png", "rgb.png"})
    EXPECT_EQ(ids(name), (std::vector<uint8_t>{1, 2, 0, 255})) << name;
}

// A palette's entry i is the grey 255 - i here.
TEST_F(LabelsCommand, AColourHasTheIdThatPalettesGiveIt) {
  write("palette.png", {1, 2, 0, 1}, PNG_COLOR_TYPE_PALETTE);
  write("rgb.png", {254, 254, 254, 253, 253, 253, 255, 255, 255, 254, 254, 254}, PNG_COLOR_TYPE_RGB);
  const Answer shown = call({"labels", from(), to()});
  EXPECT_TRUE(has(shown.err, "1 files with ids, grey or palette: as they are, by id and not by colour"))
      << shown.err;
  const auto command = command_in(shown.out);
  EXPECT_EQ(command.back(), "fefefe=1,fdfdfd=2,ffffff=0");
  EXPECT_EQ(call(command).code, 0);
  EXPECT_EQ(ids("palette.png"), (std::vector<uint8_t>{1, 2, 0, 1}));
  EXPECT_EQ(ids("rgb.png"), (std::vector<uint8_t>{1, 2, 0, 1}));
  const Answer other = call({"labels", from(), to(), "--colours", "fefefe=2,fdfdfd=1,ffffff=0"});
  EXPECT_EQ(other.code, 2);
  EXPECT_TRUE(has(other.err, from() + "/palette.png: fefefe has id 1, which stays, and not 2")) << other.err;
}

TEST_F(LabelsCommand, BesideFilesWithIdsNoColourIsNumbered) {
  write("grey.png", {1, 2, 0, 1}, PNG_COLOR_TYPE_GRAY);
  write("rgb.png", {9, 0, 0, 9, 0, 0, 0, 8, 0, 9, 0, 0}, PNG_COLOR_TYPE_RGB);
  auto command = command_in(call({"labels", from(), to()}).out);
  EXPECT_EQ(command.back(), "090000=?,000800=?");
  const Answer open = call(command);
  EXPECT_EQ(open.code, 2);
  EXPECT_TRUE(has(open.err, "put the id that the colour has in place of ?")) << open.err;
  command.back() = "090000=2,000800=1";
  EXPECT_EQ(call(command).code, 0);
  EXPECT_EQ(ids("rgb.png"), (std::vector<uint8_t>{2, 2, 1, 2}));
  EXPECT_EQ(ids("grey.png"), (std::vector<uint8_t>{1, 2, 0, 1}));
}

// Splits that were numbered one by one would not mean the same by an id.
TEST_F(LabelsCommand, AColourHasOneIdInAllFolders) {
  write("a.png", {9, 0, 0, 9, 0, 0, 0, 8, 0, 0, 0, 7}, PNG_COLOR_TYPE_RGB);
  write("../other/b.png", {0, 8, 0, 0, 8, 0, 0, 8, 0, 0, 8, 0}, PNG_COLOR_TYPE_RGB);
  const std::string other = folder_.path("other");
  const auto command = command_in(call({"labels", from(), to(), other, to() + "/other"}).out);
  ASSERT_EQ(command.size(), 7U);
  EXPECT_EQ(call(command).code, 0);
  EXPECT_EQ(ids("a.png"), (std::vector<uint8_t>{1, 1, 0, 2}));
  EXPECT_EQ(ids("other/b.png"), (std::vector<uint8_t>{0, 0, 0, 0}));
  EXPECT_TRUE(has(call({"labels", from(), to(), other}).err, "expected a folder FROM and a folder TO"));
}

TEST_F(LabelsCommand, ThePaletteOfVocIsKnown) {
  write("a.png", {0, 0, 0, 128, 0, 0, 224, 224, 192, 128, 128, 0}, PNG_COLOR_TYPE_RGB);
  const auto command = command_in(call({"labels", from(), to()}).out);
  EXPECT_EQ(command.back(), "voc");
  EXPECT_EQ(call(command).code, 0);
  EXPECT_EQ(ids("a.png"), (std::vector<uint8_t>{0, 1, 255, 3}));
}

TEST_F(LabelsCommand, AllColoursWithoutAnIdAreToldAndNothingIsWritten) {
  write("a.png", {1, 0, 0, 2, 0, 0, 3, 0, 0, 1, 0, 0}, PNG_COLOR_TYPE_RGB);
  const Answer answer = call({"labels", from(), to(), "--colours", "010000=0"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_TRUE(has(answer.err, "020000, 1 pixels in 1 files")) << answer.err;
  EXPECT_TRUE(has(answer.err, "030000")) << answer.err;
  EXPECT_FALSE(std::filesystem::exists(to() + "/a.png"));
}

TEST_F(LabelsCommand, MistakesAreNamed) {
  write("a.png", {1, 0, 0, 2, 0, 0, 3, 0, 0, 1, 0, 0}, PNG_COLOR_TYPE_RGB);
  for (const char* wrong : {"red=1", "010000=256", "010000", "010000=0,,", "010000=0,010000=1"})
    EXPECT_EQ(call({"labels", from(), to(), "--colours", wrong}).code, 2) << wrong;
  EXPECT_TRUE(has(call({"labels", from(), from() + "/ids"}).err, "expected a folder outside of"));
  EXPECT_TRUE(has(call({"labels", to() + "/none", to()}).err, "cannot be listed"));
}

}  // namespace
}  // namespace bnlab::labels_command_test

#endif
