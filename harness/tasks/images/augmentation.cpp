#include "harness/tasks/images/augmentation.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "harness/components/registry.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab::augmentation {

constexpr int64_t kMostPositions = 11;  // tried for a crop that one class does not fill

// Uniform in [-most, most] in one half of the draws, else 0.
double sometimes(Stream& stream, double most) {
  const bool drawn = stream.below(2) == 1;
  const double value = stream.uniform(-most, most);
  return drawn ? value : 0;
}

ColourChange colour_change(Stream& stream, const AugmentationOptions& options) {
  ColourChange change;
  change.brightness = static_cast<float>(sometimes(stream, options.brightness));
  change.contrast = static_cast<float>(1 + sometimes(stream, options.contrast));
  change.saturation = static_cast<float>(1 + sometimes(stream, options.saturation));
  change.hue = static_cast<float>(sometimes(stream, options.hue));
  change.contrast_first = stream.below(2) == 1;
  return change;
}

// The largest share of the known pixels that one class has.
double share_of_one_class(const at::Tensor& labels) {
  const auto* ids = labels.const_data_ptr<int64_t>();
  std::array<int64_t, 256> pixels{};  // label files hold bytes
  int64_t known = 0;
  for (int64_t i = 0; i < labels.numel(); ++i) {
    if (ids[i] != Task::kVoid) {
      ++known;
      ++pixels.at(static_cast<size_t>(ids[i]));
    }
  }
  const int64_t most = *std::ranges::max_element(pixels);
  return known > 0 ? static_cast<double>(most) / static_cast<double>(known) : 1;
}

struct Semseg : AugmentationOptions {
  Semseg() {
    rotation = 10;
    blur = 5;
  }
};

struct Mmseg : AugmentationOptions {
  Mmseg() {
    most_of_one_class = 0.75;
    brightness = 32;
    contrast = saturation = 0.5;
    hue = 36;
  }
};

template <class Options>
std::unique_ptr<Augmentation> make_preset(const Options& options, const Augmentation::Context& context) {
  return std::make_unique<Augmentation>(options, context);
}

const Registered<Augmentation> plain{
    {.name = "plain", .summary = "random scale, crop and flip; and what its options add"},
    make_preset<AugmentationOptions>};
const Registered<Augmentation> semseg{{.name = "semseg",
                                       .summary = "plain, turned by up to 10 degrees, and blurred",
                                       .source = "https://github.com/hszhao/semseg"},
                                      make_preset<Semseg>};
const Registered<Augmentation> mmseg{
    {.name = "mmseg",
     .summary = "plain, crops of which no class fills more than 75 %, and changed colours",
     .source = "https://github.com/open-mmlab/mmsegmentation"},
    make_preset<Mmseg>};

}  // namespace bnlab::augmentation

namespace bnlab {

void AugmentationOptions::describe(OptionVisitor& option) {
  option("flip", flip, "whether half of the crops are flipped left to right");
  option("rotation", rotation, "half of the crops are turned by an angle up to this, in degrees")
      .at_least(0)
      .at_most(180);
  option("most_of_one_class", most_of_one_class,
         "largest share of a crop's known pixels that one class may have; up to 11 positions are tried")
      .above(0)
      .at_most(1);
  option("brightness", brightness, "half of the crops: up to this is added to or taken from 8-bit values")
      .at_least(0)
      .at_most(255);
  option("contrast", contrast, "half of the crops: values times 1 plus or minus up to this")
      .at_least(0)
      .at_most(1);
  option("saturation", saturation, "half of the crops: saturation times 1 plus or minus up to this")
      .at_least(0)
      .at_most(1);
  option("hue", hue, "half of the crops: colours turned by up to this, in degrees").at_least(0).at_most(180);
  option("blur", blur, "half of the crops are blurred by a Gaussian of so many pixels across; 0: none")
      .at_least(0)
      .at_most(31);
}

void Augmentation::make(Stream& stream, const Photograph& photograph, double scale_min, double scale_max,
                        const ChannelMoments& moments, const at::Tensor& image,
                        const at::Tensor& labels) const {
  using namespace augmentation;
  Crop crop = random_crop(stream, photograph, labels.size(0), labels.size(1), scale_min, scale_max);
  crop.flip = crop.flip && options_.flip;
  Stream more(stream.bits(), "augment further");  // so that no option moves what another draws
  crop.angle = sometimes(more, options_.rotation * std::numbers::pi / 180);
  crop.colour = colour_change(more, options_);
  const bool blurred = options_.blur > 1 && more.below(2) == 1;
  cut(photograph, crop, moments, image, labels);
  const double most = options_.most_of_one_class;
  for (int64_t tried = 1; most < 1 && tried < kMostPositions && share_of_one_class(labels) > most; ++tried) {
    move(more, crop);
    cut(photograph, crop, moments, image, labels);
  }
  if (blurred) blur(image, options_.blur);
}

void blur(const at::Tensor& image, int64_t size) {
  const int64_t reach = size / 2;
  const double deviation = 0.3 * static_cast<double>(reach - 1) + 0.8;
  std::vector<float> weights;
  for (int64_t i = -reach; i <= reach; ++i) {
    weights.push_back(
        static_cast<float>(std::exp(-static_cast<double>(i * i) / (2 * deviation * deviation))));
  }
  const float sum = std::accumulate(weights.begin(), weights.end(), 0.0f);
  const int64_t height = image.size(1), width = image.size(2);
  // Along an axis of `count` values that lie `stride` apart, for every line that begins in a plane.
  const auto sweep = [&](float* line, int64_t count, int64_t stride) {
    std::vector<float> before(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) before[static_cast<size_t>(i)] = line[i * stride];
    for (int64_t i = 0; i < count; ++i) {
      float value = 0;
      for (int64_t k = -reach; k <= reach; ++k) {
        int64_t from = std::abs(i + k);  // mirrored at both ends
        from = std::clamp<int64_t>(from < count ? from : 2 * (count - 1) - from, 0, count - 1);
        value += weights[static_cast<size_t>(k + reach)] * before[static_cast<size_t>(from)];
      }
      line[i * stride] = value / sum;
    }
  };
  for (int64_t c = 0; c < image.size(0); ++c) {
    float* plane = image.mutable_data_ptr<float>() + c * height * width;
    for (int64_t y = 0; y < height; ++y) sweep(plane + y * width, width, 1);
    for (int64_t x = 0; x < width; ++x) sweep(plane + x, height, width);
  }
}

}  // namespace bnlab
