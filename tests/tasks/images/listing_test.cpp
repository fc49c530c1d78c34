#include "harness/tasks/images/listing.hpp"

#include <gtest/gtest.h>

#include <set>

#include "harness/support/error.hpp"

#ifdef BNLAB_WITH_IMAGES

#include "harness/support/mapped.hpp"
#include "tests/tasks/write_images.hpp"

namespace bnlab::listing_test {
namespace {

namespace fs = std::filesystem;

// Files of any content: listing opens none but the lists.
class Listing : public ::testing::Test {
 protected:
  std::string touch(const std::string& name) const {
    test::write_bytes(folder_.path(name), "x");
    return folder_.path(name);
  }
  fs::path root() const { return folder_.path(); }
  Side images(const std::string& suffix = "") const { return {root() / "images", suffix}; }
  Side labels(const std::string& suffix = "") const { return {root() / "labels", suffix}; }

  std::vector<LabelledFile> list(const std::string& lines) const {
    test::write_bytes(folder_.path("list.txt"), lines);
    const auto files = read_list(root() / "list.txt", root(), images(), labels());
    refuse_faults(files);
    return files;
  }

  template <class Work>
  static std::string error_of(Work work) {
    try {
      work();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::data) << error.what();
      return error.what();
    }
    return "no error";
  }

  test::TemporaryFolder folder_;
};

std::vector<std::string> names(const std::vector<LabelledFile>& files) {
  return mapped(files, &LabelledFile::name);
}

#define EXPECT_NAMES(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(Listing, PairsFilesOfEqualNamesInTheirOrder) {
  for (const char* name :
       {"images/b.JPG", "images/a.png", "images/town/c.jpeg", "labels/a.png", "labels/b.png",
        "labels/town/c.PNG", "images/notes.txt", "images/._a.png", "labels/Thumbs.db"}) {
    touch(name);
  }
  const auto files = pair_files(images(), labels(), "");
  EXPECT_EQ(names(files), (std::vector<std::string>{"a", "b", "town/c"}));
  EXPECT_EQ(files[2].image, (root() / "images/town/c.jpeg").string());
  EXPECT_EQ(files[2].labels, (root() / "labels/town/c.PNG").string());
}

TEST_F(Listing, LinkedFoldersAreReadHiddenOnesAreNot) {
  for (const char* name : {"images/a.png", "labels/a.png", "images/.ipynb_checkpoints/a-checkpoint.png",
                           "elsewhere/images/b.png", "elsewhere/labels/b.png"}) {
    touch(name);
  }
  for (const char* side : {"images", "labels"})
    std::filesystem::create_directory_symlink(root() / "elsewhere" / side, root() / side / "town");
  EXPECT_EQ(names(pair_files(images(), labels(), "")), (std::vector<std::string>{"a", "town/b"}));
}

TEST_F(Listing, WhatOtherSystemsLeaveIsPassedOver) {
  for (const char* name : {"images/a.png", "labels/a.png", "images/@eaDir/a.png", "images/__MACOSX/._a.png",
                           "images/.DS_Store", "images/Thumbs.db", "labels/$RECYCLE.BIN/a.png"}) {
    touch(name);
  }
  fs::create_directory_symlink("..", root() / "images/up");  // circles
  fs::create_directory_symlink(".", root() / "labels/here");
  fs::create_symlink("gone.png", root() / "images/b.txt");
  EXPECT_EQ(names(pair_files(images(), labels(), "")), std::vector<std::string>{"a"});
}

// "ü" as one character, as macOS leaves it, and as both in one folder.
TEST_F(Listing, ANameHasManySpellings) {
  const std::string one = "m\xc3\xbcller", two = "mu\xcc\x88ller";
  touch("images/" + one + ".jpg");
  touch("labels/" + two + ".png");
  touch("images/\xe3\x81\x8c.jpg");              // ga
  touch("labels/\xe3\x81\x8b\xe3\x82\x99.png");  // ka with its mark
  touch("images/\xed\x95\x9c.jpg");              // han
  touch("labels/\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab.png");
  touch("images/\xe1\xba\xbf.jpg");  // e with two marks
  touch("labels/e\xcc\x82\xcc\x81.png");
  touch("images/\xfc.jpg");  // no UTF-8
  touch("labels/\xfc.png");
  auto files = pair_files(images(), labels(), "");
  refuse_faults(files);
  EXPECT_EQ(files.size(), 5u);
  touch("images/" + two + ".jpg");
  touch("labels/" + one + ".png");
  files = pair_files(images(), labels(), "");
  refuse_faults(files);
  for (const LabelledFile& file : files)
    if (file.name == one || file.name == two) EXPECT_NAMES(file.labels, file.name);
  touch("images/muller.jpg");
  EXPECT_NAMES(error_of([&] { refuse_faults(pair_files(images(), labels(), "")); }),
               "labels/muller.png: missing");
}

TEST_F(Listing, ListsMaySpellNamesInAnotherWay) {
  touch("images/mu\xcc\x88ller.jpg");
  touch("labels/m\xc3\xbcller.png");
  for (const char* name : {"m\xc3\xbcller", "mu\xcc\x88ller"})
    for (const std::string& line :
         {std::string(name), std::string("images/") + name + ".jpg labels/" + name + ".png"}) {
      const auto files = list(line);
      ASSERT_EQ(files.size(), 1u);
      EXPECT_TRUE(fs::exists(files[0].image) && fs::exists(files[0].labels)) << line;
    }
  EXPECT_TRUE(fs::exists(below(root(), "images/m\xc3\xbcller.jpg", "images")));
}

TEST_F(Listing, ListsMayBeOfAnySystem) {
  touch("images/town/a.jpg");
  touch("labels/town/a.png");
  for (const std::string line :
       {"\xef\xbb\xbfimages/town/a.jpg labels/town/a.png\r\n",
        "images\\town\\a.jpg\tlabels\\town\\a.png  \r\n\r\n",
        "C:\\data\\images\\town\\a.jpg C:\\data\\labels\\town\\a.png", "\r\r  town\\a \r"}) {
    const auto files = list(line);
    ASSERT_EQ(files.size(), 1u) << line;
    EXPECT_EQ(files[0].image, (root() / "images/town/a.jpg").string()) << line;
    EXPECT_EQ(files[0].labels, (root() / "labels/town/a.png").string()) << line;
  }
  EXPECT_NAMES(error_of([&] {
                 list(
                     std::string("\xff\xfe"
                                 "a\0\n\0",
                                 6));
               }),
               "iconv -f UTF-16 -t UTF-8");
}

TEST_F(Listing, SuffixesSayWhichFilesAreMeant) {
  for (const char* name :
       {"images/a_rgb.png", "images/a_depth.png", "labels/a_ids.png", "labels/a_colour.png"}) {
    touch(name);
  }
  for (const auto& [image, label] : {std::pair("_rgb", "_ids"), {"_rgb.png", "_ids.png"}}) {
    const auto files = pair_files(images(image), labels(label), "");
    EXPECT_EQ(names(files), std::vector<std::string>{"a"});
    EXPECT_EQ(files[0].labels, (root() / "labels/a_ids.png").string());
  }
}

TEST_F(Listing, ImagesAndLabelsMayShareAFolder) {
  touch("a.jpg");
  touch("a_mask.png");
  EXPECT_EQ(names(pair_files({root(), ".jpg"}, {root(), "_mask.png"}, "")), std::vector<std::string>{"a"});
}

TEST_F(Listing, WhatIsMissingOrThereTwiceIsNamed) {
  const auto error = [&] {
    return error_of([&] { refuse_faults(pair_files(images(), labels(), "; the cure")); });
  };
  EXPECT_NAMES(error(), images().folder.string() + ": cannot be listed");
  fs::create_directories(images().folder);
  EXPECT_NAMES(error(), labels().folder.string() + ": cannot be listed");
  fs::create_directories(labels().folder);
  EXPECT_NAMES(error(), images().folder.string() + ": no images here (.jpg or .png); the cure");
  const std::string image = touch("images/a.jpg");
  EXPECT_NAMES(error(),
               (root() / "labels/a.png").string() + ": missing, the labels of " + image + "; the cure");
  touch("labels/a.jpg");
  EXPECT_NAMES(error(), "JPEG changes the ids");
  touch("labels/a.png");
  EXPECT_EQ(error(), "no error");
  const std::string labels = touch("labels/b.png");
  EXPECT_NAMES(error(), "the image of " + labels + " is missing; the cure");
  touch("images/b.jpg");
  touch("images/b.png");
  EXPECT_NAMES(error(), "two pictures of this name");
}

TEST_F(Listing, AllPairsThatAreNotWholeAreToldTogether) {
  for (const char* name : {"images/a.jpg", "images/b.jpg", "images/d.tif", "labels/c.png", "labels/d.png"})
    touch(name);
  const std::string text = error_of([&] { refuse_faults(pair_files(images(), labels(), "; the cure")); });
  EXPECT_NAMES(text, "4 faults in the data:\n2 of kind \"images without labels\"");
  for (const char* part :
       {"labels/a.png: missing", "labels/b.png: missing", "labels/c.png is missing; the cure"}) {
    EXPECT_NAMES(text, part);
  }
  EXPECT_NAMES(text, (root() / "images/d.tif").string() + " is not read: convert all of them");
}

TEST_F(Listing, AMistypedRootIsAnsweredWithTheNearestFolder) {
  fs::create_directories(root() / "sets/lamps");
  EXPECT_NAMES(error_of([&] { data_root(root(), "folder", "sets/lampz"); }),
               (root() / "sets/lampz").string() + ": no such folder; did you mean \"root\": \"sets/lamps\"?");
}

TEST_F(Listing, ListsNameImageAndLabels) {
  touch("x/a.jpg");
  touch("y/a.png");
  touch("images/b.jpg");
  touch("labels/b.png");
  // A relative pair with a carriage return, an absolute pair of another machine, a name alone, a blank line.
  const auto files = list("x/a.jpg y/a.png\r\n/home/me/data/images/b.jpg /home/me/data/labels/b.png\n\n");
  EXPECT_EQ(names(files), (std::vector<std::string>{"x/a", "images/b"}));
  EXPECT_EQ(files[1].labels, (root() / "labels/b.png").string());
  const auto alone = list("b\n");
  EXPECT_EQ(names(alone), std::vector<std::string>{"b"});
  EXPECT_EQ(alone[0].image, (root() / "images/b.jpg").string());
}

TEST_F(Listing, MistakesInListsAreNamedWithTheirLine) {
  touch("images/a.jpg");
  touch("labels/a.png");
  const auto error = [&](const std::string& lines) { return error_of([&] { list(lines); }); };
  EXPECT_NAMES(error("images/a.jpg labels/a.png\nimages/b.jpg labels/a.png\n"), "list.txt, line 2: ");
  EXPECT_NAMES(error("a b c\n"), "list.txt, line 1: expected `image label` or one name, got 3 words");
  EXPECT_NAMES(error("a\na\n"), "is listed twice");
  EXPECT_NAMES(error("c\n"), "line 1: " + (root() / "images/c.png").string() + " does not exist");
  EXPECT_NAMES(error("\n"), "list.txt: expected a file with lines");
  EXPECT_NAMES(error_of([&] { read_list(root() / "none.txt", root(), images(), labels()); }),
               "does not exist");
}

TEST_F(Listing, ListsAndOptionsLeadNowhereElse) {
  touch("images/a.jpg");
  touch("labels/a.png");
  fs::create_directories(root() / "inner");
  test::write_bytes(folder_.path("inner/list.txt"), "../images/a.jpg ../labels/a.png\n");
  EXPECT_NAMES(error_of([&] {
                 refuse_faults(read_list(root() / "inner/list.txt", root() / "inner", images(), labels()));
               }),
               "leads out of");
  test::write_bytes(folder_.path("inner/list.txt"), "/../../etc/passwd /x/../../labels/a.png\n");
  EXPECT_NAMES(error_of([&] {
                 refuse_faults(read_list(root() / "inner/list.txt", root() / "inner", images(), labels()));
               }),
               "does not exist");
  test::write_bytes(folder_.path("inner/list.txt"), "../images/a\n");
  EXPECT_NAMES(error_of([&] {
                 refuse_faults(read_list(root() / "inner/list.txt", root() / "inner", images(), labels()));
               }),
               "leads out of");
  test::write_bytes(folder_.path("list.txt"), "x\n");
  EXPECT_NAMES(
      error_of([&] {
        refuse_faults(read_list(root() / "list.txt", root(), {root() / "images", "/../../../b"}, labels()));
      }),
      "leads out of");
  for (const char* wrong : {"", "..", "../x", "/etc", "a/../../b"})
    EXPECT_THROW(below(root(), wrong, "root"), Error) << wrong;
  EXPECT_EQ(below("data", "a/../b", "root"), fs::path("data/b"));
}

TEST_F(Listing, ThePrefixIsThePartBeforeTheFirstLine) {
  EXPECT_EQ(prefix_of("0001TP_006690"), "0001TP");
  EXPECT_EQ(prefix_of("aachen/aachen_000_019"), "aachen");
  EXPECT_EQ(prefix_of("alone"), "alone");
}

std::vector<LabelledFile> some_files(int count, int groups) {
  std::vector<LabelledFile> files;
  for (int i = 0; i < count; ++i) {
    const std::string name = std::to_string(i);
    files.push_back({name, name, name, groups > 0 ? "g" + std::to_string(i % groups) : ""});
  }
  return files;
}

std::set<std::string> names_of(const std::vector<LabelledFile>& files) {
  const auto all = names(files);
  return {all.begin(), all.end()};
}

TEST_F(Listing, AShareOfTheFilesIsHeldOut) {
  const Split split = hold_out(some_files(40, 0), 0.2);
  EXPECT_EQ(split.test.size(), 8u);
  EXPECT_EQ(split.training.size(), 32u);
  std::set<std::string> all = names_of(split.training);
  all.merge(names_of(split.test));
  EXPECT_EQ(all.size(), 40u);
  // The order in which the files are found does not matter, and a new file changes little.
  auto reversed = some_files(41, 0);
  std::reverse(reversed.begin(), reversed.end());
  const auto after = names_of(hold_out(reversed, 0.2).test), before = names_of(split.test);
  std::vector<std::string> both;
  std::ranges::set_intersection(after, before, std::back_inserter(both));
  EXPECT_GE(both.size(), 7u);
}

TEST_F(Listing, GroupsAreHeldOutWhole) {
  const Split split = hold_out(some_files(40, 5), 0.3);  // groups of 8: two of them make 12 or more
  const auto groups = [](const std::vector<LabelledFile>& files) {
    const auto all = mapped(files, &LabelledFile::group);
    return std::set<std::string>(all.begin(), all.end());
  };
  EXPECT_EQ(split.test.size(), 16u);
  EXPECT_EQ(groups(split.test).size(), 2u);
  EXPECT_EQ(groups(split.training).size(), 3u);
}

TEST_F(Listing, BothSidesOfAHeldOutShareHaveFiles) {
  EXPECT_EQ(hold_out(some_files(2, 0), 0.01).test.size(), 1u);
  EXPECT_EQ(hold_out(some_files(2, 0), 0.99).training.size(), 1u);
  EXPECT_NAMES(error_of([] { hold_out(some_files(1, 0), 0.2); }), "at least two images");
  EXPECT_NAMES(error_of([] { hold_out(some_files(9, 1), 0.2); }), "at least two groups");
}

}  // namespace
}  // namespace bnlab::listing_test

#endif
