// frames: anybody's clips, each a folder of frames, in the layout of action recognition (UCF101, HMDB51):
//   ROOT/PATH/img_00001.jpg, img_00002.jpg, ... and lists with a line `PATH frames label` for each clip
// Of every clip the middle frames of equal parts of it are taken (Wang et al. 2016, TSN, take such parts).
#include <algorithm>
#include <filesystem>
#include <optional>
#include <regex>

#include "harness/components/registry.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/tasks/classification.hpp"
#include "harness/tasks/images/examined.hpp"
#include "harness/tasks/images/listing.hpp"
#include "harness/tasks/images/resized_images.hpp"
#include "harness/tasks/images/spelling.hpp"

namespace bnlab::frames {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& message) {
  throw Error(Error::Kind::data, message);
}

// Names of frames, like img_%05d.jpg: what stands before the number, its digits and what follows.
struct Pattern {
  std::string before, behind;
  size_t digits = 0;

  static std::optional<Pattern> read(const std::string& text) {
    static const std::regex form("([^%/]*)%0([1-9])d([^%/]*)");
    std::smatch part;
    if (!std::regex_match(text, part, form)) return std::nullopt;
    return Pattern{part[1], part[3], static_cast<size_t>(std::stoul(part[2]))};
  }
  std::string name(int64_t number) const {
    const std::string text = std::to_string(number);
    return before + std::string(digits - std::min(digits, text.size()), '0') + text + behind;
  }
};

struct Options : ClassificationOptions {
  std::string root;
  std::string train_list = "train.txt", test_list = "test.txt";
  std::string pattern = "img_%05d.jpg";
  int64_t first = 1;
  int64_t frames = 8;
  WindowOptions window{.size = {112, 112}, .short_side = 128};

  void describe(OptionVisitor& option) {
    option("root", root, "folder of the data set, below the data folder").not_empty().needed();
    option("train_list", train_list,
           "file with a line `path frames label` for each training clip, below root")
        .not_empty();
    option("test_list", test_list, "the same for the clips that are evaluated").not_empty();
    option("pattern", pattern, "names of a clip's frames").not_empty();
    option("first", first, "number of a clip's first frame").at_least(0).at_most(1);
    option("frames", frames, "to take of each clip").at_least(1).at_most(64);
    window.describe(option);
    ClassificationOptions::describe(option);
  }
  void check(const RunOutline&, Problems& problems) const {
    window.check(problems);
    if (!Pattern::read(pattern)) {
      problems.add("pattern",
                   "expected a file name with one number, like img_%05d.jpg, got " + shown(pattern));
    }
  }
  ImageSizes image_sizes() const { return {window.size, window.size}; }
  std::vector<std::string> sort_keys() const { return {"class"}; }
  Paths files(const std::string& data_dir) const;
};

struct Clips {
  std::vector<std::string> files;  // `frames` of each clip in turn
  std::vector<int64_t> labels;
};

// The place of frame `i` of those to take among all of a clip, from 0.
int64_t place_of_frame(int64_t i, int64_t taken, int64_t all) {
  return (2 * i + 1) * all / (2 * taken);
}

// A clip's folder, which must lie below the root.
fs::path clip_folder(const fs::path& root, const std::string& given, Spellings& spellings,
                     const std::string& where) {
  const fs::path normal = listed_path(root, given).lexically_normal();
  if (normal.is_absolute() || *normal.begin() == "..")
    fail(where + ": expected a path below " + root.string() + ", got " + given);
  return spellings.find(root / normal);
}

// Takes the number and the blanks before it off the end of a text. Nothing where there are none.
std::optional<int64_t> take_number(std::string& text) {
  const size_t blank = text.find_last_of(" \t"), end = text.find_last_not_of(" \t", blank);
  if (blank == std::string::npos || end == std::string::npos) return std::nullopt;
  const std::string number = text.substr(blank + 1);
  text.resize(end + 1);
  const bool digits = !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  return digits && number.size() <= 9 ? std::optional(std::stoll(number)) : std::nullopt;
}

Clips read_list(const fs::path& root, const fs::path& list, const Options& options) {
  const Pattern pattern = *Pattern::read(options.pattern);
  Clips clips;
  Spellings spellings;
  for (const auto& [where, line] : lines_of_list(list)) {
    std::string path = line;
    const std::optional<int64_t> label = take_number(path), frames = take_number(path);
    if (!label || frames.value_or(0) == 0)
      fail(where + ": expected `path frames label` with at least one frame, got '" + line + "'");
    const fs::path folder = clip_folder(root, path, spellings, where);
    for (int64_t i = 0; i < options.frames; ++i) {
      const int64_t place = place_of_frame(i, options.frames, *frames);
      const fs::path file = folder / pattern.name(options.first + place);
      std::error_code none;  // a name may be too long
      if (!fs::is_regular_file(file, none))
        fail(file.string() + ": missing, a frame of the clip in " + where);
      clips.files.push_back(file.string());
    }
    clips.labels.push_back(*label);
  }
  if (clips.labels.empty())
    fail(list.string() + ": expected a line `path frames label` for each clip, got none");
  return clips;
}

Paths Options::files(const std::string& data_dir) const {
  const fs::path folder = data_root(data_dir, "frames", root);
  Paths paths;
  for (const auto& [key, given] : {std::pair("train_list", train_list), {"test_list", test_list}}) {
    const fs::path list = below(folder, given, key);
    const Clips clips = read_list(folder, list, *this);
    paths.push_back(list.string());
    paths.insert(paths.end(), clips.files.begin(), clips.files.end());
  }
  return paths;
}

DataCheck data_check(const Options& options, const std::string& data_dir) {
  const fs::path folder = data_root(data_dir, "frames", options.root);
  Clips clips = read_list(folder, below(folder, options.train_list, "train_list"), options);
  const int64_t training = std::ssize(clips.labels);
  const Clips test = read_list(folder, below(folder, options.test_list, "test_list"), options);
  std::string question = joined(clips.files, "\n") + "\ntest\n" + joined(test.files, "\n");
  return {std::move(question), [learned = std::move(clips.files), tested = test.files, training] {
            return examine_images(learned, tested, training);
          }};
}

int64_t classes_of(const std::vector<int64_t>& training_labels, const std::vector<int64_t>& test_labels) {
  const int64_t classes = 1 + std::ranges::max(training_labels);
  if (const int64_t highest = std::ranges::max(test_labels); highest >= classes) {
    fail("label " + std::to_string(highest) + " of the test list: the training list has labels 0 to " +
         std::to_string(classes - 1));
  }
  return classes;
}

class Frames : public ClassificationTask {
 public:
  using Options = frames::Options;

  Frames(const Options& options, const Context& context)
      : Frames(options, context, data_root(context.data_dir, "frames", options.root)) {}

  int64_t rows_per_sample() const override { return frames_; }
  std::array<int64_t, 2> training_image_size() const override { return size_; }
  int64_t training_samples() const override { return static_cast<int64_t>(train_labels_.size()); }
  int64_t test_samples() const override { return static_cast<int64_t>(test_labels_.size()); }
  std::vector<OneSize> test_sizes() const override { return {{size_, test_samples()}}; }

  // All frames of a clip are cut alike.
  Examples training(const std::vector<Draw>& draws) const override {
    const Examples batch = blank(static_cast<int64_t>(draws.size()));
    for (size_t i = 0; i < draws.size(); ++i) {
      const auto& [sample, epoch] = draws[i];
      Stream stream(seed_, "augment", static_cast<uint64_t>(epoch * training_samples() + sample));
      const Window window = random_window(stream, train_.image(sample * frames_), size_);
      batch.labels.mutable_data_ptr<int64_t>()[i] = train_labels_[static_cast<size_t>(sample)];
      write(train_, sample, window, batch, static_cast<int64_t>(i));
    }
    return batch;
  }

  Examples test(int64_t begin, int64_t count) const override {
    const Examples batch = blank(count);
    for (int64_t i = 0; i < count; ++i) {
      const Window window = centre_window(test_.image((begin + i) * frames_), size_);
      batch.labels.mutable_data_ptr<int64_t>()[i] = test_labels_[static_cast<size_t>(begin + i)];
      write(test_, begin + i, window, batch, i);
    }
    return batch;
  }

  std::vector<double> sort_values(const std::string&) const override {
    return {train_labels_.begin(), train_labels_.end()};
  }

  // Clips of one group ("v_Archery_g08_c01") share their scene.
  std::vector<std::string> sample_names() const override {
    std::vector<std::string> names;
    for (int64_t sample = 0; sample < training_samples(); ++sample) {
      const std::string clip = fs::path(train_.file(sample * frames_)).parent_path().filename().string();
      const size_t end = clip.find_last_not_of("0123456789");
      const bool numbered =
          end != std::string::npos && end + 1 < clip.size() && clip.substr(0, end + 1).ends_with("_c");
      names.push_back(numbered ? clip.substr(0, end - 1) : clip);
    }
    return names;
  }

  std::unique_ptr<Task> validation(const std::vector<int64_t>& training_samples) const override {
    auto task = std::make_unique<Frames>(*this);
    std::vector<int64_t> frames;
    for (const int64_t sample : training_samples)
      for (int64_t f = 0; f < frames_; ++f) frames.push_back(sample * frames_ + f);
    task->test_ = train_.part(frames);
    task->test_labels_ =
        mapped(training_samples, [&](int64_t sample) { return train_labels_[static_cast<size_t>(sample)]; });
    task->train_ = {};
    task->train_labels_.clear();
    return task;
  }

 private:
  Frames(const Options& options, const Context& context, const fs::path& root)
      : Frames(options, context, read_list(root, below(root, options.train_list, "train_list"), options),
               read_list(root, below(root, options.test_list, "test_list"), options)) {}
  Frames(const Options& options, const Context& context, Clips train, Clips test)
      : ClassificationTask(classes_of(train.labels, test.labels), options),
        seed_(context.seed),
        frames_(options.frames),
        size_(options.window.size),
        train_(std::move(train.files), options.window.short_side),
        test_(std::move(test.files), options.window.short_side),
        train_labels_(std::move(train.labels)),
        test_labels_(std::move(test.labels)) {}

  Examples blank(int64_t count) const {
    return {at::empty({count * frames_, 3, size_[0], size_[1]}, at::kFloat), at::empty({count}, at::kLong)};
  }
  void write(const ResizedImages& from, int64_t clip, const Window& window, const Examples& to,
             int64_t row) const {
    at::Tensor first;
    for (int64_t f = 0; f < frames_; ++f) {
      const at::Tensor frame = from.image(clip * frames_ + f);
      first = f == 0 ? frame : first;
      if (frame.sizes() != first.sizes())
        fail(from.file(clip * frames_ + f) + ": expected the size of the clip's other frames");
      cut_window(frame, window, size_,
                 to.images.mutable_data_ptr<float>() + (row * frames_ + f) * 3 * size_[0] * size_[1]);
    }
  }

  uint64_t seed_;
  int64_t frames_;
  std::array<int64_t, 2> size_;
  ResizedImages train_, test_;
  std::vector<int64_t> train_labels_, test_labels_;
};

const Registered<Task> entry{{.name = "frames",
                              .summary = "your own clips, each a folder of frames, from list files",
                              .source = "lists as in Wang et al. 2016 (TSN)",
                              .labelled = Labelled::clips},
                             make<Task, Frames>};

}  // namespace bnlab::frames
