// For tests of tasks on files: writes small images and label maps in a data set's layout and makes the task
// of them.
#pragma once

#include "harness/support/error.hpp"
#include "tests/tasks/make_task.hpp"

#ifdef BNLAB_WITH_IMAGES

#include "tests/tasks/write_images.hpp"

namespace bnlab::test {

#define EXPECT_NAMES(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class FileTask : public ::testing::Test {
 protected:
  static constexpr int kHeight = 12, kStripe = 6;

  // `root`: the task's folder below the data folder, with a '/' behind it.
  FileTask(std::string name, std::string root, Json options)
      : name_(std::move(name)), root_(std::move(root)), options_(std::move(options)) {}

  std::string file(const std::string& name) const { return folder_.path(root_ + name); }

  // A textured grey image of so many stripes; its first pixel is 90.
  void write_image(const std::string& name, int stripes = 3) const {
    Picture picture{kHeight, kStripe * stripes, {}};
    for (int y = 0; y < picture.height; ++y)
      for (int x = 0; x < picture.width; ++x)
        picture.values.insert(picture.values.end(), 3, static_cast<uint8_t>(90 + (7 * x + 13 * y) % 60));
    name.ends_with(".png") ? write_png(file(name), picture, PNG_COLOR_TYPE_RGB)
                           : write_jpeg(file(name), picture);
  }
  // A label map of vertical stripes with these ids.
  void write_labels(const std::string& name, const std::vector<uint8_t>& ids,
                    int colour = PNG_COLOR_TYPE_GRAY) const {
    Picture picture{kHeight, kStripe * static_cast<int>(ids.size()), {}};
    for (int y = 0; y < kHeight; ++y)
      for (const uint8_t id : ids) picture.values.insert(picture.values.end(), kStripe, id);
    write_png(file(name), picture, colour);
  }

  std::unique_ptr<Task> task(const Json& changes = Json::object()) const {
    Json options = options_;
    options.update(changes);
    return make_task(name_, options, {0, folder_.path()});
  }
  std::vector<std::string> sort_keys(const Json& changes = Json::object()) const {
    Json options = options_;
    options.update(changes);
    const Json resolved = resolved_task(name_, options);
    return facts_of<TaskFacts>(resolved).sort_keys(resolved);
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
  // The classes of the stripes of a test image.
  std::vector<int64_t> stripes(const Json& changes = Json::object(), int64_t sample = 0) const {
    const at::Tensor row = task(changes)->test(sample, 1).labels[0][0];
    std::vector<int64_t> classes;
    for (int64_t x = 0; x < row.size(0); x += kStripe) classes.push_back(row[x].item<int64_t>());
    return classes;
  }

  TemporaryFolder folder_;

 private:
  std::string name_, root_;
  Json options_;
};

}  // namespace bnlab::test

#endif
