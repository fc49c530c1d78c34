// cifar10 and cifar100: small photographs of things, 32x32, 50000 for training and 10000 for the test
// (Krizhevsky 2009), in the binary form of https://www.cs.toronto.edu/~kriz/cifar.html. A record is one byte
// of a label (CIFAR-100: a coarse and a fine one, which counts) and 1024 bytes each of red, green and blue,
// row by row. Training images are padded with 4 black pixels on each side, cropped to 32x32 at random and
// flipped at random (He et al. 2016). Held out is the last fifth of the training images, which for CIFAR-10
// is its fifth file.
#include <array>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "harness/components/registry.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/random.hpp"
#include "harness/tasks/classification.hpp"
#include "harness/tasks/held_out.hpp"
#include "harness/tasks/images/listing.hpp"

namespace bnlab::cifar {

namespace fs = std::filesystem;

constexpr int64_t kSide = 32, kPlane = kSide * kSide, kPixels = 3 * kPlane, kPadding = 4;

// A data set as it is published.
struct Published {
  std::string task, root;
  std::vector<std::string> files;  // those of the training, then that of the test
  int64_t training_file_records, test_records;
  int64_t label_bytes;  // per record; the last one is the class
  int64_t classes;
  std::array<float, 3> mean, deviation;  // over the training pixels, in [0, 1]
  std::string archive;
};

const Published& cifar10() {
  static const Published published{.task = "cifar10",
                                   .root = "cifar-10-batches-bin",
                                   .files = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                             "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"},
                                   .training_file_records = 10000,
                                   .test_records = 10000,
                                   .label_bytes = 1,
                                   .classes = 10,
                                   .mean = {0.4914f, 0.4822f, 0.4465f},
                                   .deviation = {0.2470f, 0.2435f, 0.2616f},
                                   .archive = "cifar-10-binary.tar.gz"};
  return published;
}

const Published& cifar100() {
  static const Published published{.task = "cifar100",
                                   .root = "cifar-100-binary",
                                   .files = {"train.bin", "test.bin"},
                                   .training_file_records = 50000,
                                   .test_records = 10000,
                                   .label_bytes = 2,
                                   .classes = 100,
                                   .mean = {0.5071f, 0.4867f, 0.4408f},
                                   .deviation = {0.2675f, 0.2565f, 0.2761f},
                                   .archive = "cifar-100-binary.tar.gz"};
  return published;
}

struct Images {
  std::vector<uint8_t> pixels;  // [N, 3, side, side]
  std::vector<int64_t> labels;

  int64_t count() const { return static_cast<int64_t>(labels.size()); }
  const uint8_t* image(int64_t i) const { return pixels.data() + i * kPixels; }

  // Takes the images from `first` on away and returns them.
  Images split_off(int64_t first) {
    Images rest{{pixels.begin() + first * kPixels, pixels.end()}, {labels.begin() + first, labels.end()}};
    pixels.resize(static_cast<size_t>(first * kPixels));
    labels.resize(static_cast<size_t>(first));
    return rest;
  }
};

std::vector<char> read_file(const fs::path& file, int64_t records, const Published& published) {
  const int64_t expected = records * (published.label_bytes + kPixels);
  const std::string cure =
      "; unpack " + published.archive + " from https://www.cs.toronto.edu/~kriz/cifar.html";
  std::error_code error;
  const auto size = static_cast<int64_t>(fs::file_size(file, error));
  if (error)
    throw Error(Error::Kind::data, file.string() + ": cannot be read (" + error.message() + ")" + cure);
  if (size != expected) {
    throw Error(Error::Kind::data, file.string() + ": expected " + std::to_string(expected) + " bytes, " +
                                       std::to_string(records) + " images, got " + std::to_string(size) +
                                       cure);
  }
  std::vector<char> bytes(static_cast<size_t>(size));
  if (!std::ifstream(file, std::ios::binary).read(bytes.data(), size))
    throw Error(Error::Kind::data, file.string() + ": cannot be read" + cure);
  return bytes;
}

void append(const fs::path& file, int64_t records, const Published& published, Images& images) {
  const std::vector<char> bytes = read_file(file, records, published);
  const int64_t record = published.label_bytes + kPixels;
  images.pixels.reserve(images.pixels.size() + static_cast<size_t>(records * kPixels));
  for (int64_t i = 0; i < records; ++i) {
    const char* pixels = bytes.data() + i * record + published.label_bytes;
    const auto label = static_cast<uint8_t>(pixels[-1]);
    if (label >= published.classes) {
      throw Error(Error::Kind::data, file.string() + ": image " + std::to_string(i) +
                                         ": expected a class below " + std::to_string(published.classes) +
                                         ", got " + std::to_string(label));
    }
    images.labels.push_back(label);
    images.pixels.insert(images.pixels.end(), pixels, pixels + kPixels);
  }
}

struct Options : ClassificationOptions {
  std::string root;
  Evaluated test_split = Evaluated::test;
  bool augment = true;

  void describe(OptionVisitor& option) {
    option("root", root, "folder of the binary files, below the data folder").not_empty();
    option("test_split", test_split,
           "what is evaluated: the test images, or, to tune on, the last fifth of the training images, which "
           "are then not trained on");
    option("augment", augment, "whether training images are padded, cropped and flipped");
    ClassificationOptions::describe(option);
  }
  ImageSizes image_sizes() const { return {{kSide, kSide}, {kSide, kSide}}; }
  std::vector<std::string> sort_keys() const { return {"class", "brightness"}; }
  std::vector<std::string> test_sort_keys() const { return {"brightness"}; }
};

// The options of one of the two.
template <const Published& (*published)()>
struct OptionsOf : Options {
  OptionsOf() { root = published().root; }
  Paths files(const std::string& data_dir) const {
    const fs::path folder = data_root(data_dir, published().task, root);
    return mapped(published().files, [&](const std::string& file) { return (folder / file).string(); });
  }
};

class Cifar : public ClassificationTask {
 public:
  std::array<int64_t, 2> training_image_size() const override { return {kSide, kSide}; }
  int64_t training_samples() const override { return train_.count(); }
  int64_t test_samples() const override { return test_.count(); }
  std::vector<OneSize> test_sizes() const override { return {{{kSide, kSide}, test_samples()}}; }

  Examples training(const std::vector<Draw>& draws) const override {
    const Examples batch = blank(static_cast<int64_t>(draws.size()));
    for (size_t i = 0; i < draws.size(); ++i) {
      const auto& [sample, epoch] = draws[i];
      Stream stream(seed_, "augment", static_cast<uint64_t>(epoch * training_samples() + sample));
      Place place;
      if (augment_) {
        place.top = stream.below(2 * kPadding + 1) - kPadding;
        place.left = stream.below(2 * kPadding + 1) - kPadding;
        place.flip = stream.below(2) == 1;
      }
      write(train_, sample, place, batch, static_cast<int64_t>(i));
    }
    return batch;
  }

  Examples test(int64_t begin, int64_t count) const override {
    const Examples batch = blank(count);
    for (int64_t i = 0; i < count; ++i) write(test_, begin + i, {}, batch, i);
    return batch;
  }

  std::unique_ptr<Task> validation(const std::vector<int64_t>& training_samples) const override {
    auto task = std::make_unique<Cifar>(*this);
    task->test_ = {};
    for (const int64_t sample : training_samples) {
      task->test_.labels.push_back(train_.labels[static_cast<size_t>(sample)]);
      task->test_.pixels.insert(task->test_.pixels.end(), train_.image(sample),
                                train_.image(sample) + kPixels);
    }
    task->train_ = {};
    return task;
  }

  std::vector<double> sort_values(const std::string& key) const override {
    if (key == "class") return {train_.labels.begin(), train_.labels.end()};
    return brightness(train_);
  }
  std::vector<double> test_sort_values(const std::string& key) const override {
    return key == "brightness" ? brightness(test_) : std::vector<double>();
  }

 protected:
  Cifar(const Published& published, const Options& options, const Paths& files, uint64_t seed)
      : ClassificationTask(published.classes, options), seed_(seed), augment_(options.augment) {
    for (const std::string& file : files) {
      const bool test = file == files.back();
      append(file, test ? published.test_records : published.training_file_records, published,
             test ? test_ : train_);
    }
    if (options.test_split == Evaluated::held_out)
      test_ = train_.split_off(train_.count() - train_.count() / 5);
    for (size_t c = 0; c < 3; ++c) {
      for (size_t value = 0; value < 256; ++value) {
        normalised_[c][value] =
            (static_cast<float>(value) / 255 - published.mean[c]) / published.deviation[c];
      }
    }
  }

 private:
  // Of the crop within the image, and whether it is flipped.
  struct Place {
    int64_t top = 0, left = 0;
    bool flip = false;
  };

  static std::vector<double> brightness(const Images& images) {
    std::vector<double> means;
    for (int64_t i = 0; i < images.count(); ++i)
      means.push_back(std::accumulate(images.image(i), images.image(i) + kPixels, 0.0) / kPixels);
    return means;
  }

  static Examples blank(int64_t count) {
    return {at::empty({count, 3, kSide, kSide}, at::kFloat), at::empty({count}, at::kLong)};
  }

  void write(const Images& from, int64_t index, const Place& place, const Examples& to, int64_t row) const {
    to.labels.mutable_data_ptr<int64_t>()[row] = from.labels[static_cast<size_t>(index)];
    float* out = to.images.mutable_data_ptr<float>() + row * kPixels;
    for (int64_t p = 0; p < kPixels; ++p) {
      const int64_t c = p / kPlane, column = p % kSide;
      const int64_t y = p % kPlane / kSide + place.top;
      const int64_t x = (place.flip ? kSide - 1 - column : column) + place.left;
      const bool inside = y >= 0 && y < kSide && x >= 0 && x < kSide;
      out[p] =
          normalised_[static_cast<size_t>(c)][inside ? from.image(index)[c * kPlane + y * kSide + x] : 0];
    }
  }

  uint64_t seed_;
  bool augment_;
  Images train_, test_;
  std::array<std::array<float, 256>, 3> normalised_;  // by channel and byte
};

template <const Published& (*published)()>
class CifarOf : public Cifar {
 public:
  using Options = OptionsOf<published>;
  CifarOf(const Options& options, const Context& context)
      : Cifar(published(), options, options.files(context.data_dir), context.seed) {}
};

const Registered<Task> cifar10_entry{
    {.name = "cifar10",
     .summary = "CIFAR-10: photographs of 32x32 in 10 classes, from binary files",
     .source = "Krizhevsky 2009",
     .labelled = Labelled::images},
    make<Task, CifarOf<cifar10>>};

const Registered<Task> cifar100_entry{
    {.name = "cifar100",
     .summary = "CIFAR-100: photographs of 32x32 in 100 classes, from binary files",
     .source = "Krizhevsky 2009",
     .labelled = Labelled::images},
    make<Task, CifarOf<cifar100>>};

}  // namespace bnlab::cifar
