// image_folder: anybody's photographs of things, one folder per class, in the layout that torchvision's
// ImageFolder reads:
//   ROOT/train/CLASS/**/NAME.jpg and ROOT/test/CLASS/**/NAME.jpg (or ROOT/val)
// A class is the place of its folder among those of the training split in the order of their bytes.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <utility>

#include "harness/components/registry.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/shell.hpp"
#include "harness/tasks/classification.hpp"
#include "harness/tasks/images/examined.hpp"
#include "harness/tasks/images/listing.hpp"
#include "harness/tasks/images/resized_images.hpp"
#include "harness/tasks/images/spelling.hpp"

namespace bnlab::image_folder {

namespace fs = std::filesystem;

using FilesOfClass = std::map<std::string, std::vector<std::string>>;  // sorted

[[noreturn]] void fail(const std::string& message) {
  throw Error(Error::Kind::data, message);
}

// Whether the file is an image that can be read. Images that cannot are faults.
bool readable(const fs::path& file, std::vector<DataFault>& faults) {
  const std::string ending = ending_of(file);
  for (const char* other : {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif"}) {
    if (ending == other) {
      faults.push_back(
          {"photographs to convert", file.string() + ": expected a JPEG or PNG file, got " + ending +
                                         "; move them away, or convert all of them, " +
                                         source_command(".venv/bin/python scripts/convert_images.py --remove",
                                                        {file.parent_path().string()})});
    }
  }
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

std::vector<std::string> images_below(const fs::path& folder, std::vector<DataFault>& faults) {
  std::vector<std::string> files;
  const size_t before = faults.size();
  try {
    for (const fs::path& file : files_below(folder))
      if (readable(file, faults)) files.push_back(file.string());
  } catch (const fs::filesystem_error& error) {
    fail(error.path1().string() + ": cannot be listed (" + error.code().message() + ")");
  }
  if (files.empty() && faults.size() == before) {
    faults.push_back({"classes without images",
                      folder.string() +
                          ": no images here (.jpg, .jpeg or .png); put some there, or move the folder away"});
  }
  std::ranges::sort(files);
  return files;
}

FilesOfClass list_split(const fs::path& split, std::vector<DataFault>& faults) {
  FilesOfClass files;
  for (const auto& entry : fs::directory_iterator(split))
    if (entry.is_directory() && !hidden(entry.path()))
      files[entry.path().filename().string()] = images_below(entry.path(), faults);
  return files;
}

struct Splits {
  FilesOfClass train, test;
};

struct Options : ClassificationOptions {
  std::string root;
  std::string train_split = "train";
  std::optional<std::string> test_split;
  WindowOptions window;

  void describe(OptionVisitor& option) {
    option("root", root, "folder of the data set, below the data folder").not_empty().needed();
    option("train_split", train_split, "folder of the training split").not_empty();
    option("test_split", test_split,
           "folder of the split that is evaluated; null: test or val, whichever is there")
        .not_empty();
    window.describe(option);
    ClassificationOptions::describe(option);
  }
  void check(const RunOutline&, Problems& problems) const { window.check(problems); }
  ImageSizes image_sizes() const { return {window.size, window.size}; }
  std::vector<std::string> sort_keys() const { return {"class"}; }

  Splits splits(const std::string& data_dir) const;
  Paths files(const std::string& data_dir) const;
};

Splits Options::splits(const std::string& data_dir) const {
  const fs::path folder = data_root(data_dir, "image_folder", root);
  const fs::path train = below(folder, train_split, "train_split");
  fs::path test = below(folder, test_split.value_or("test"), "test_split");
  if (!test_split && !fs::is_directory(test)) test = folder / "val";
  for (const fs::path& split : {train, test}) {
    if (!fs::is_directory(split)) {
      fail(split.string() + ": no such folder; expected " + (folder / train_split).string() +
           "/CLASS/NAME.jpg and " + (folder / test_split.value_or("test")).string() + "/CLASS/NAME.jpg");
    }
  }
  std::vector<DataFault> faults;
  Splits found{list_split(train, faults), list_split(test, faults)};
  if (!faults.empty()) throw FaultyData(std::move(faults));
  if (found.train.size() < 2) {
    fail(train.string() + ": expected a folder of images for each of at least two classes, got " +
         std::to_string(found.train.size()));
  }
  std::map<std::u32string, std::string> spelt;  // a class of both splits may be spelt in two ways
  for (const auto& [name, unused] : found.train) spelt.emplace(canonical(name), name);
  for (auto& [name, files] : std::exchange(found.test, {})) {
    const auto same = spelt.find(canonical(name));
    auto& all = found.test[found.train.contains(name) || same == spelt.end() ? name : same->second];
    all.insert(all.end(), files.begin(), files.end());
  }
  for (const auto& [name, files] : found.test)
    if (!found.train.contains(name)) fail((test / name).string() + ": the training split has no such class");
  if (found.test.empty()) fail(test.string() + ": expected a folder of images for each class, got none");
  return found;
}

Paths files_of(const FilesOfClass& by_class) {
  Paths paths;
  for (const auto& [unused, files] : by_class) paths.insert(paths.end(), files.begin(), files.end());
  return paths;
}

Paths Options::files(const std::string& data_dir) const {
  const Splits found = splits(data_dir);
  Paths paths = files_of(found.train);
  std::ranges::copy(files_of(found.test), std::back_inserter(paths));
  return paths;
}

DataCheck data_check(const Options& options, const std::string& data_dir) {
  const Splits found = options.splits(data_dir);
  Paths training = files_of(found.train), test = files_of(found.test);
  std::string question = joined(training, "\n") + "\ntest\n" + joined(test, "\n");
  return {std::move(question), [training = std::move(training), test = std::move(test)] {
            return examine_images(training, test, std::ssize(training));
          }};
}

class ImageFolder : public ClassificationTask {
 public:
  using Options = image_folder::Options;

  ImageFolder(const Options& options, const Context& context)
      : ImageFolder(options, context, options.splits(context.data_dir)) {}

  std::array<int64_t, 2> training_image_size() const override { return size_; }
  int64_t training_samples() const override { return train_.images.count(); }
  int64_t test_samples() const override { return test_.images.count(); }
  std::vector<OneSize> test_sizes() const override { return {{size_, test_samples()}}; }

  Examples training(const std::vector<Draw>& draws) const override {
    const Examples batch = blank(static_cast<int64_t>(draws.size()));
    for (size_t i = 0; i < draws.size(); ++i) {
      const auto& [sample, epoch] = draws[i];
      Stream stream(seed_, "augment", static_cast<uint64_t>(epoch * training_samples() + sample));
      const at::Tensor image = train_.images.image(sample);
      write(train_, sample, image, random_window(stream, image, size_), batch, static_cast<int64_t>(i));
    }
    return batch;
  }

  Examples test(int64_t begin, int64_t count) const override {
    const Examples batch = blank(count);
    for (int64_t i = 0; i < count; ++i) {
      const at::Tensor image = test_.images.image(begin + i);
      write(test_, begin + i, image, centre_window(image, size_), batch, i);
    }
    return batch;
  }

  std::vector<double> sort_values(const std::string&) const override {
    return {train_.labels.begin(), train_.labels.end()};
  }

  std::vector<std::string> sample_names() const override {
    std::vector<std::string> names;
    for (int64_t sample = 0; sample < training_samples(); ++sample) {
      const fs::path file = train_.images.file(sample);  // its class and name, wherever the data folder is
      names.push_back(std::to_string(train_.labels[static_cast<size_t>(sample)]) + "/" +
                      file.filename().string());
    }
    return names;
  }

  std::unique_ptr<Task> validation(const std::vector<int64_t>& training_samples) const override {
    auto task = std::make_unique<ImageFolder>(*this);
    task->test_ = train_.part(training_samples);
    task->train_ = train_.part({});
    return task;
  }

 private:
  struct Split {
    // `train`: whose folders tell the classes.
    Split(const FilesOfClass& files, const FilesOfClass& train, int64_t short_side) {
      std::vector<std::string> all;
      for (const auto& [name, of_class] : files) {
        all.insert(all.end(), of_class.begin(), of_class.end());
        labels.resize(all.size(), std::distance(train.begin(), train.find(name)));
      }
      images = ResizedImages(std::move(all), short_side);
    }
    Split part(const std::vector<int64_t>& samples) const {
      Split some = *this;
      some.images = images.part(samples);
      some.labels = mapped(samples, [&](int64_t sample) { return labels[static_cast<size_t>(sample)]; });
      return some;
    }

    ResizedImages images;
    std::vector<int64_t> labels;
  };

  ImageFolder(const Options& options, const Context& context, const Splits& found)
      : ClassificationTask(static_cast<int64_t>(found.train.size()), options),
        seed_(context.seed),
        size_(options.window.size),
        train_(found.train, found.train, options.window.short_side),
        test_(found.test, found.train, options.window.short_side) {}

  Examples blank(int64_t count) const {
    return {at::empty({count, 3, size_[0], size_[1]}, at::kFloat), at::empty({count}, at::kLong)};
  }
  void write(const Split& from, int64_t index, const at::Tensor& image, const Window& window,
             const Examples& to, int64_t row) const {
    to.labels.mutable_data_ptr<int64_t>()[row] = from.labels[static_cast<size_t>(index)];
    cut_window(image, window, size_, to.images.mutable_data_ptr<float>() + row * 3 * size_[0] * size_[1]);
  }

  uint64_t seed_;
  std::array<int64_t, 2> size_;
  Split train_, test_;
};

const Registered<Task> entry{{.name = "image_folder",
                              .summary = "your own photographs, one folder per class",
                              .source = "torchvision's ImageFolder",
                              .labelled = Labelled::images},
                             make<Task, ImageFolder>};

}  // namespace bnlab::image_folder
