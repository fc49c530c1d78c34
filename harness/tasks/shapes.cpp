// Synthetic segmentation, made from the seed: discs, squares, triangles and rings on a textured
// background, later ones over earlier ones. Two cues tell the classes apart, and neither does alone:
//   disc: warm, striped    square: warm, checked    triangle: cold, striped    ring: cold, checked
// (the outline helps, too). The illumination nuisance then changes every image as a whole:
//   image = exp(nuisance * N(0, 1)) * scene + nuisance * N(0, 1) per channel,
// so that colours mean something only beside the image's own statistics. How far image statistics
// vary decides which normalisation wins: the nuisance is part of the question, and of the record.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>

#include "harness/components/registry.hpp"
#include "harness/support/random.hpp"
#include "harness/tasks/segmentation.hpp"

namespace bnlab::shapes {

constexpr int64_t kClasses = 5;  // 0 is the background
using Colour = std::array<float, 3>;

// One image while it is made: [3, height, width] and [height, width].
struct Scene {
  int64_t height;
  int64_t width;
  float* image;
  int64_t* labels;

  void paint(int64_t y, int64_t x, const Colour& colour, float shade) const {
    for (size_t c = 0; c < 3; ++c)
      image[(static_cast<int64_t>(c) * height + y) * width + x] = colour[c] + shade;
  }
};

Colour jittered(Stream& stream, const Colour& colour, double deviation) {
  Colour result;
  for (size_t c = 0; c < 3; ++c) result[c] = colour[c] + static_cast<float>(deviation * stream.normal());
  return result;
}

// A plane wave over the image: sin(along_x * x + along_y * y + phase).
struct Wave {
  Wave(Stream& stream, double angle, double shortest, double longest) {
    const double frequency = 2 * std::numbers::pi / stream.uniform(shortest, longest);  // per pixel
    along_x = static_cast<float>(frequency * std::cos(angle));
    along_y = static_cast<float>(frequency * std::sin(angle));
    phase = static_cast<float>(stream.uniform(0, 2 * std::numbers::pi));
  }
  float at(int64_t y, int64_t x) const {
    return std::sin(along_x * static_cast<float>(x) + along_y * static_cast<float>(y) + phase);
  }
  float along_x, along_y, phase;
};

void paint_background(Stream& stream, const Scene& scene) {
  const Colour base = jittered(stream, {0, 0, 0}, 0.4);
  const Wave broad(stream, stream.uniform(0, std::numbers::pi), 24, 64);
  const Wave fine(stream, stream.uniform(0, std::numbers::pi), 4, 12);
  const auto strength = static_cast<float>(stream.uniform(0.1, 0.6));
  for (int64_t y = 0; y < scene.height; ++y) {
    for (int64_t x = 0; x < scene.width; ++x) {
      scene.paint(y, x, base, 0.5f * broad.at(y, x) + strength * fine.at(y, x));
      scene.labels[y * scene.width + x] = 0;
    }
  }
}

// Whether (u, v), in units of the shape's radius, belongs to the shape of this class.
bool covers(int64_t label, float u, float v) {
  switch (label) {
    case 1:  // disc
      return u * u + v * v <= 1;
    case 2:  // square
      return std::max(std::abs(u), std::abs(v)) <= 0.85f;
    case 3:  // equilateral triangle
      return v >= -0.65f && std::numbers::sqrt3_v<float> * std::abs(u) + v <= 1.3f;
    default:  // ring
      return u * u + v * v <= 1 && u * u + v * v >= 0.2f;
  }
}

void paint_shape(Stream& stream, const Scene& scene) {
  const int64_t label = 1 + stream.below(kClasses - 1);
  const double side = static_cast<double>(std::min(scene.height, scene.width));
  const double radius = side * stream.uniform(0.12, 0.3);
  const double centre_y = stream.uniform(0, static_cast<double>(scene.height));
  const double centre_x = stream.uniform(0, static_cast<double>(scene.width));
  const double angle = stream.uniform(0, 2 * std::numbers::pi);
  const bool warm = label <= 2, striped = label % 2 == 1;
  const Colour colour = jittered(stream, warm ? Colour{0.6f, 0, -0.6f} : Colour{-0.6f, 0, 0.6f}, 0.35);
  const Wave first(stream, angle, 4, 7), second(stream, angle + std::numbers::pi / 2, 4, 7);
  const auto cosine = static_cast<float>(std::cos(angle) / radius);
  const auto sine = static_cast<float>(std::sin(angle) / radius);
  const auto begin = [&](double centre) {
    return std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - 1.3 * radius)));
  };
  const auto end = [&](double centre, int64_t size) {
    return std::min(size, static_cast<int64_t>(std::ceil(centre + 1.3 * radius)));
  };
  for (int64_t y = begin(centre_y); y < end(centre_y, scene.height); ++y) {
    for (int64_t x = begin(centre_x); x < end(centre_x, scene.width); ++x) {
      const auto dx = static_cast<float>(static_cast<double>(x) - centre_x);
      const auto dy = static_cast<float>(static_cast<double>(y) - centre_y);
      if (covers(label, cosine * dx + sine * dy, cosine * dy - sine * dx)) {
        const float wave = striped ? first.at(y, x) : 1.4f * first.at(y, x) * second.at(y, x);
        scene.paint(y, x, colour, 0.6f * wave);
        scene.labels[y * scene.width + x] = label;
      }
    }
  }
}

// Grain, the image's illumination, and a fixed scale that makes the variance about 1.
void illuminate(Stream& stream, const Scene& scene, float gain, const Colour& offset) {
  constexpr float kScale = 1.35f, kGrain = 0.3f;
  for (size_t c = 0; c < 3; ++c) {
    float* plane = scene.image + static_cast<int64_t>(c) * scene.height * scene.width;
    for (int64_t i = 0; i < scene.height * scene.width; ++i) {
      const float grain = kGrain * (2 * static_cast<float>(stream.uniform()) - 1);
      plane[i] = gain * kScale * (plane[i] + grain) + offset[c];
    }
  }
}

// Summed in one order on any number of threads: equal on all ranks.
std::vector<double> brightness(const at::Tensor& images) {
  std::vector<double> means;
  const int64_t values = images[0].numel();
  for (int64_t i = 0; i < images.size(0); ++i) {
    const float* image = images.const_data_ptr<float>() + i * values;
    means.push_back(std::accumulate(image, image + values, 0.0) / static_cast<double>(values));
  }
  return means;
}

class Shapes : public SegmentationTask {
 public:
  struct Options : SegmentationOptions {
    std::array<int64_t, 2> size = {64, 64};
    int64_t train = 512;
    int64_t test = 128;
    double nuisance = 0.2;

    void describe(OptionVisitor& option) {
      option("size", size, "height and width of all images in pixels").at_least(8).at_most(1024);
      option("train", train, "training images").at_least(1).at_most(100000);
      option("test", test, "test images").at_least(1).at_most(100000);
      option("nuisance", nuisance, "strength of the illumination nuisance; 0: none").at_least(0).at_most(2);
      SegmentationOptions::describe(option);
    }

    ImageSizes image_sizes() const { return {size, size}; }
    std::vector<std::string> sort_keys() const { return {"class", "brightness"}; }
    std::vector<std::string> test_sort_keys() const { return {"brightness"}; }
  };

  Shapes(const Options& options, const Context& context)
      : SegmentationTask(kClasses, options),
        seed_(context.seed),
        size_(options.size),
        nuisance_(options.nuisance),
        train_(make("shapes.train", options.train)),
        test_(make("shapes.test", options.test)) {}

  std::array<int64_t, 2> training_image_size() const override { return size_; }
  int64_t training_samples() const override { return train_.labels.size(0); }
  int64_t test_samples() const override { return test_.labels.size(0); }
  std::vector<OneSize> test_sizes() const override { return {{size_, test_samples()}}; }
  bool may_have_void() const override { return false; }

  Examples training(const std::vector<Draw>& draws) const override;
  Examples test(int64_t begin, int64_t count) const override {
    return {test_.images.narrow(0, begin, count), test_.labels.narrow(0, begin, count)};
  }

  // class: the one of the shapes that covers most pixels; brightness: the image's mean, nuisance included.
  std::vector<double> sort_values(const std::string& key) const override;
  std::vector<double> test_sort_values(const std::string& key) const override {
    return key == "brightness" ? brightness(test_.images) : std::vector<double>();
  }

  std::unique_ptr<Task> validation(const std::vector<int64_t>& training_samples) const override {
    auto task = std::make_unique<Shapes>(*this);
    const at::Tensor samples = at::tensor(training_samples, at::kLong);
    task->test_ = {train_.images.index_select(0, samples), train_.labels.index_select(0, samples)};
    task->train_ = blank_examples(0, size_[0], size_[1]);
    return task;
  }

 private:
  Examples make(const char* purpose, int64_t count) const;

  uint64_t seed_;
  std::array<int64_t, 2> size_;
  double nuisance_;
  Examples train_, test_;
};

Examples Shapes::make(const char* purpose, int64_t count) const {
  const auto [height, width] = size_;
  Examples made = blank_examples(count, height, width);
  for (int64_t i = 0; i < count; ++i) {
    const Scene scene{.height = height,
                      .width = width,
                      .image = made.images.mutable_data_ptr<float>() + i * 3 * height * width,
                      .labels = made.labels.mutable_data_ptr<int64_t>() + i * height * width};
    Stream stream(seed_, purpose, static_cast<uint64_t>(i));
    // Drawn first, so that the scenes are the same at every level of the nuisance.
    const auto gain = static_cast<float>(std::exp(nuisance_ * stream.normal()));
    const Colour offset = jittered(stream, {0, 0, 0}, nuisance_);
    paint_background(stream, scene);
    for (int64_t shapes = 3 + stream.below(4); shapes > 0; --shapes) paint_shape(stream, scene);
    illuminate(stream, scene, gain, offset);
  }
  return made;
}

// Copies `lines` lines of `width` values, each from right to left if `flip`.
template <class T>
void copy_lines(const T* from, T* to, int64_t lines, int64_t width, bool flip) {
  if (!flip) {
    std::copy(from, from + lines * width, to);
    return;
  }
  for (int64_t line = 0; line < lines; ++line)
    std::reverse_copy(from + line * width, from + (line + 1) * width, to + line * width);
}

Examples Shapes::training(const std::vector<Draw>& draws) const {
  const auto [height, width] = size_;
  const auto count = static_cast<int64_t>(draws.size());
  Examples batch = blank_examples(count, height, width);
  const int64_t plane = height * width;
  for (int64_t i = 0; i < count; ++i) {
    const auto& [sample, epoch] = draws[static_cast<size_t>(i)];
    Stream stream(seed_, "augment", static_cast<uint64_t>(epoch * training_samples() + sample));
    const bool flip = stream.below(2) == 1;
    copy_lines(train_.images.const_data_ptr<float>() + sample * 3 * plane,
               batch.images.mutable_data_ptr<float>() + i * 3 * plane, 3 * height, width, flip);
    copy_lines(train_.labels.const_data_ptr<int64_t>() + sample * plane,
               batch.labels.mutable_data_ptr<int64_t>() + i * plane, height, width, flip);
  }
  return batch;
}

std::vector<double> Shapes::sort_values(const std::string& key) const {
  if (key == "class") return most_frequent(train_.labels, 1);
  return brightness(train_.images);
}

const Registered<Task> entry{
    {.name = "shapes",
     .summary = "coloured, textured shapes of 4 classes under varying illumination, made from the seed"},
    bnlab::make<Task, Shapes>};

}  // namespace bnlab::shapes
