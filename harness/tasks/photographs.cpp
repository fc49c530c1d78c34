#include "harness/tasks/photographs.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/tasks/images/labelled_images.hpp"

namespace bnlab {
namespace {

constexpr int64_t kLargestCrop = 4096;
constexpr int64_t kMiB = 1 << 20;
constexpr ChannelMoments kImageNet{{123.675f, 116.28f, 103.53f}, {58.395f, 57.12f, 57.375f}};

using Summary = LabelledImages::Summary;

std::string file_size_text(const Summary& image) {
  return std::to_string(image.file_size[0]) + "x" + std::to_string(image.file_size[1]);
}

void check_one_size(const LabelledImages& set) {
  const Summary& first = set.summaries().at(0);
  for (size_t i = 0; i < set.files().size(); ++i) {
    if (const Summary& image = set.summaries()[i]; image.file_size != first.file_size) {
      throw Error(Error::Kind::data, set.files()[i].image + ": expected the size of " + set.files()[0].image +
                                         ", " + file_size_text(first) + ", got " + file_size_text(image) +
                                         "; all images of a split need one size");
    }
  }
}

// The places of the images, by height and width and then as they come.
std::vector<int64_t> by_size(const std::vector<Summary>& images) {
  std::vector<int64_t> places(images.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::stable_sort(places, {}, [&](int64_t place) {
    const Summary& image = images[static_cast<size_t>(place)];
    return std::pair(image.height, image.width);
  });
  return places;
}

double brightness_of(const Summary& image) {
  const uint64_t sum = image.sum[0] + image.sum[1] + image.sum[2];
  return static_cast<double>(sum) / static_cast<double>(3 * image.height * image.width);
}

}  // namespace

void PhotographOptions::describe(OptionVisitor& option) {
  option("scale", scale, "reduction of all images when they are read").above(0).at_most(1);
  option("crop", crop, "training crop: height and width in reduced pixels").at_least(8).at_most(kLargestCrop);
  option("test_size", test_size,
         "height and width that test images are reduced to fit into and padded to; null: each its own")
      .at_least(8)
      .at_most(kLargestCrop);
  option("test_multiple", test_multiple,
         "without test_size: test images are padded to multiples of this, too, beside what the model needs")
      .at_least(1)
      .at_most(1024);
  option("random_scale_min", random_scale_min, "smallest random scale of a training image")
      .at_least(0.1)
      .at_most(10);
  option("random_scale_max", random_scale_max, "largest random scale of a training image")
      .at_least(0.1)
      .at_most(10);
  option.component("augment", augment, "augmentation", "what else happens to training images");
  option("normalisation", normalisation,
         "mean and deviation of each channel: the training images' own, or ImageNet's, which imported "
         "weights expect");
  option("cache_mib", cache_mib,
         "MiB of decoded photographs that each rank keeps in memory; others are read again for every use")
      .at_least(0)
      .at_most(1e7);
  option("class_weights", class_weights,
         "of the loss: those that its own option gives, or median_frequency, counted on the training labels");
  SegmentationOptions::describe(option);
}

ImageSizes PhotographOptions::image_sizes() const {
  return test_size ? ImageSizes{crop, *test_size} : ImageSizes{crop};
}

void PhotographOptions::check(const RunOutline&, Problems& problems) const {
  if (random_scale_min > random_scale_max) {
    problems.add("random_scale_max", "expected at least random_scale_min, " + Json(random_scale_min).dump() +
                                         ", got " + Json(random_scale_max).dump());
  }
  if (class_weights != ClassWeights::given &&
      (!loss.contains("class_weights") || !loss["class_weights"].is_null())) {
    problems.add("class_weights", loss.contains("class_weights")
                                      ? "the loss gives class_weights of its own; take one of the two out"
                                      : "the loss " + shown(loss["name"]) + " takes none; use cross_entropy");
  }
}

Paths paths_of(const PhotographSet& set) {
  std::vector<LabelledFile> all = set.training;
  all.insert(all.end(), set.test.begin(), set.test.end());
  refuse_faults(all);
  Paths paths;
  for (const auto* side : {&set.training, &set.test}) {
    for (const LabelledFile& file : *side) {
      paths.push_back(file.image);
      paths.push_back(file.labels);
    }
  }
  return paths;
}

PhotographTask::PhotographTask(const PhotographSet& set, const PhotographOptions& options,
                               const Context& context)
    : SegmentationTask(std::ssize(set.classes), options),
      seed_(context.seed),
      crop_(options.crop),
      test_size_(options.test_size),
      test_multiple_(std::lcm(options.test_multiple, context.image_multiple)),
      scale_min_(options.random_scale_min),
      scale_max_(options.random_scale_max),
      augmentation_(Registered<Augmentation>::create(options.augment, {})),
      groups_(set.groups),
      loss_(options.loss),
      train_(set.training, {set.labels, options.scale, {}}, classes(), options.cache_mib * kMiB),
      test_(set.test, {set.labels, options.scale, options.test_size}, classes(),
            options.cache_mib * kMiB - train_.bytes_kept()) {
  if (set.one_size) {
    check_one_size(train_);
    check_one_size(test_);
  }
  moments_ = options.normalisation == Normalisation::own ? channel_moments(train_.summaries()) : kImageNet;
  if (options.class_weights == ClassWeights::median_frequency)
    loss_["class_weights"] = median_frequency_weights(train_.summaries());
  order_test();
}

PhotographTask::PhotographTask(const PhotographTask& whole, LabelledImages evaluated)
    : SegmentationTask(whole),
      seed_(whole.seed_),
      crop_(whole.crop_),
      test_size_(whole.test_size_),
      test_multiple_(whole.test_multiple_),
      scale_min_(whole.scale_min_),
      scale_max_(whole.scale_max_),
      augmentation_(whole.augmentation_),
      groups_(whole.groups_),
      loss_(whole.loss_),
      test_(std::move(evaluated)),
      moments_(whole.moments_) {
  order_test();
}

void PhotographTask::order_test() {
  test_order_ = by_size(test_.summaries());
  if (groups_) {
    set_test_groups(
        mapped(test_order_, [&](int64_t place) { return test_.files()[static_cast<size_t>(place)].group; }));
  }
}

std::vector<std::string> PhotographTask::sample_names() const {
  return mapped(train_.files(), kept_together);
}

std::unique_ptr<Task> PhotographTask::validation(const std::vector<int64_t>& training_samples) const {
  LabelledImages evaluated = train_.part(training_samples);
  if (test_size_) evaluated = evaluated.read_again(test_size_);
  return std::unique_ptr<Task>(new PhotographTask(*this, std::move(evaluated)));
}

Examples PhotographTask::training(const std::vector<Draw>& draws) const {
  const Examples batch = blank_examples(static_cast<int64_t>(draws.size()), crop_[0], crop_[1]);
  for (size_t i = 0; i < draws.size(); ++i) {
    const auto& [sample, epoch] = draws[i];
    Stream stream(seed_, "augment", static_cast<uint64_t>(epoch * training_samples() + sample));
    const auto row = static_cast<int64_t>(i);
    augmentation_->make(stream, *train_.photograph(sample), scale_min_, scale_max_, moments_,
                        batch.images[row], batch.labels[row]);
  }
  return batch;
}

std::vector<OneSize> PhotographTask::test_sizes() const {
  std::vector<OneSize> sizes;
  for (int64_t sample = 0; sample < test_samples(); ++sample) {
    if (sample == 0 || own_size(sample) != own_size(sample - 1)) sizes.push_back({padded_size(sample)});
    ++sizes.back().samples;
  }
  return sizes;
}

std::array<int64_t, 2> PhotographTask::own_size(int64_t sample) const {
  const Summary& image = test_.summaries()[static_cast<size_t>(place_of(sample))];
  return {image.height, image.width};
}

std::array<int64_t, 2> PhotographTask::padded_size(int64_t sample) const {
  const auto rounded_up = [&](int64_t side) {
    return (side + test_multiple_ - 1) / test_multiple_ * test_multiple_;
  };
  const auto [height, width] = own_size(sample);
  return test_size_.value_or(std::array{rounded_up(height), rounded_up(width)});
}

Examples PhotographTask::test(int64_t begin, int64_t count) const {
  const auto [height, width] = own_size(begin);
  if (count > 0 && own_size(begin + count - 1) != own_size(begin))
    throw std::logic_error("test samples of several sizes were asked for at once");
  const Examples own = blank_examples(count, height, width);
  in_parallel(static_cast<size_t>(count), [&](size_t i) {
    const auto row = static_cast<int64_t>(i);
    const auto photograph = test_.photograph(place_of(begin + row));
    cut(*photograph, whole_image(*photograph, height, width), moments_, own.images[row], own.labels[row]);
  });
  const auto [padded_height, padded_width] = padded_size(begin);
  if (padded_height == height && padded_width == width) return own;
  return {mirrored(own.images, padded_height, padded_width),
          at::constant_pad_nd(own.labels, {0, padded_width - width, 0, padded_height - height}, kVoid)};
}

std::vector<double> PhotographTask::sort_values(const std::string& key) const {
  if (key == "class") {
    return mapped(train_.summaries(), [](const Summary& image) {
      const auto most = std::ranges::max_element(image.class_pixels);  // the lowest of equals
      return *most == 0 ? double{kVoid} : static_cast<double>(most - image.class_pixels.begin());
    });
  }
  if (key == "brightness") return mapped(train_.summaries(), brightness_of);
  const Numbered groups = number_names(mapped(train_.files(), &LabelledFile::group));
  return {groups.numbers.begin(), groups.numbers.end()};
}

std::vector<double> PhotographTask::test_sort_values(const std::string& key) const {
  if (key == "class") return {};
  const std::vector<std::string> names = number_names(mapped(train_.files(), &LabelledFile::group)).names;
  return mapped(test_order_, [&](int64_t place) {
    if (key == "brightness") return brightness_of(test_.summaries()[static_cast<size_t>(place)]);
    const std::string& group = test_.files()[static_cast<size_t>(place)].group;
    const auto found = std::ranges::find(names, group);
    if (found == names.end()) {
      throw Error(Error::Kind::refused, "no training image is of the " + key + " " + shown(Json(group)) +
                                            ", of which there are test images; there are: " + joined(names));
    }
    return static_cast<double>(found - names.begin());
  });
}

}  // namespace bnlab
