// Synthetic clips, made from the seed, whose classes ask for two different things at once. 16 classes = 8
// motions x 2 scenes: class y is motion y mod 8 in scene y div 8. Every 16 clips show each class once, in an
// order of their own, so that a batch of the test split mixes scenes.
//   motions, forwards and backwards: a disc that crosses the image from left to right, or from top to bottom;
//   a bar that turns; a disc that grows. A pair has the same frames in opposite order: who is blind to order
//   is right half the time.
//   scene `gain`: one of exp(-0.3) or exp(+0.3) on the whole clip, zero staying zero. Batch norm over several
//   clips keeps it; over one clip it is divided out.
//   scene `texture`: the waves of the background lie along the rows or along the columns, which no
//   normalisation takes out.
// The frames of a clip are alike (they share the scene, the background, the colour and a gain and offset of
// their own), so that a tower's rows count for less than they are many, unless they are shuffled over the
// towers.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "harness/components/registry.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/random.hpp"
#include "harness/tasks/classification.hpp"

namespace bnlab::motion {

constexpr int64_t kMotions = 8, kScenes = 2;
constexpr int64_t kSide = 32;  // height and width of a frame
constexpr int64_t kPlane = kSide * kSide, kFrame = 3 * kPlane;

BNLAB_CHOICE(Scene, gain, texture)

int64_t motion_of(int64_t label) {
  return label % kMotions;
}
int64_t direction_of(int64_t label) {
  return label % 2;
}
int64_t scene_of(int64_t label) {
  return label / kMotions;
}

// What moves: `covers` says how much of a pixel it covers at a time in [0, 1], with edges one pixel wide.
struct Thing {
  Thing(Stream& stream, int64_t family)
      : family_(family),
        along(stream.uniform(4, 7)),
        across(stream.uniform(8, 24)),
        angle(stream.uniform(0, std::numbers::pi)),
        centre{stream.uniform(12, 20), stream.uniform(12, 20)} {
    for (double& c : colour) c = stream.uniform(0.6, 1);
  }

  double covers(double y, double x, double time) const {
    constexpr double kWay = 21, kTurn = 84 * std::numbers::pi / 180, kGrowth = 5.6;
    switch (family_) {
      case 0:
        return inside(4 - std::hypot(y - across, x - (along + kWay * time)));
      case 1:
        return inside(4 - std::hypot(y - (along + kWay * time), x - across));
      case 2: {
        const double now = angle + kTurn * time, half = kSide / 2.0;
        const double u = (x - half) * std::cos(now) + (y - half) * std::sin(now);
        const double v = (y - half) * std::cos(now) - (x - half) * std::sin(now);
        return inside(std::min(8 - std::abs(u), 2 - std::abs(v)));
      }
      default:
        return inside(3 + kGrowth * time - std::hypot(y - centre[0], x - centre[1]));
    }
  }
  static double inside(double distance) { return std::clamp(distance + 0.5, 0.0, 1.0); }  // from the edge

  int64_t family_;
  double along, across, angle;
  std::array<double, 2> centre;
  std::array<double, 3> colour{};
};

// A plane wave of whole periods over the frame.
struct Background {
  explicit Background(Stream& stream)
      : along_x(2 * std::numbers::pi * static_cast<double>(1 + stream.below(3)) / kSide),
        along_y(2 * std::numbers::pi * static_cast<double>(1 + stream.below(3)) / kSide),
        phase(stream.uniform(0, 2 * std::numbers::pi)) {}
  void lie_along(bool rows) {
    along_x = 2 * std::numbers::pi * (rows ? 1 : 3) / kSide;
    along_y = 2 * std::numbers::pi * (rows ? 3 : 1) / kSide;
  }
  double at(double y, double x) const { return 0.4 + 0.1 * std::sin(along_x * x + along_y * y + phase); }
  double along_x, along_y, phase;
};

// Writes a clip, [frames, 3, side, side].
void make_clip(Stream stream, Scene scene, int64_t label, int64_t frames, float* clip) {
  constexpr double kMean = 0.445,
                   kDeviation = 0.16;  // about those of all values: the images are standardised
  Background background(stream);
  if (scene == Scene::texture) background.lie_along(scene_of(label) == 0);
  const Thing thing(stream, motion_of(label) / 2);
  const double of_scene = scene == Scene::gain ? 0.3 * static_cast<double>(2 * scene_of(label) - 1) : 0;
  const double gain = std::exp(0.15 * stream.normal() + of_scene);
  std::array<double, 3> offset{};
  for (double& o : offset) o = 0.075 * stream.normal();
  for (int64_t t = 0; t < frames; ++t) {
    float* frame = clip + (direction_of(label) == 0 ? t : frames - 1 - t) * kFrame;
    const double flicker = 0.02 * stream.normal();
    const double time = static_cast<double>(t) / static_cast<double>(frames - 1);
    for (int64_t p = 0; p < kPlane; ++p) {
      const auto y = static_cast<double>(p / kSide), x = static_cast<double>(p % kSide);
      const double cover = thing.covers(y, x, time), behind = background.at(y, x);
      for (size_t c = 0; c < 3; ++c) {
        const double value = behind + cover * (thing.colour[c] - behind) + offset[c] + flicker;
        frame[static_cast<int64_t>(c) * kPlane + p] = static_cast<float>(gain * (value - kMean) / kDeviation);
      }
    }
  }
}

class Motion : public ClassificationTask {
 public:
  struct Options : ClassificationOptions {
    int64_t frames = 8;
    int64_t train = 512;
    int64_t test = 160;
    Scene scene = Scene::gain;

    void describe(OptionVisitor& option) {
      option("frames", frames, "of each clip").at_least(2).at_most(64);
      option("train", train, "training clips").at_least(1).at_most(100000);
      option("test", test, "test clips").at_least(1).at_most(100000);
      option("scene", scene,
             "what tells the two scenes apart: a gain of the clip, which the moments of one clip divide out, "
             "or the way that its background lies, which they leave");
      ClassificationOptions::describe(option);
    }

    ImageSizes image_sizes() const { return {{kSide, kSide}, {kSide, kSide}}; }
    std::vector<std::string> sort_keys() const { return {"class", "scene"}; }
  };

  Motion(const Options& options, const Context& context)
      : ClassificationTask(kMotions * kScenes, options),
        frames_(options.frames),
        scene_(options.scene),
        train_(make(context.seed, "motion.train", options.train)),
        test_(make(context.seed, "motion.test", options.test)) {}

  int64_t rows_per_sample() const override { return frames_; }
  std::array<int64_t, 2> training_image_size() const override { return {kSide, kSide}; }
  int64_t training_samples() const override { return train_.labels.size(0); }
  int64_t test_samples() const override { return test_.labels.size(0); }
  std::vector<OneSize> test_sizes() const override { return {{{kSide, kSide}, test_samples()}}; }

  // As they are: a flipped clip would show another motion.
  Examples training(const std::vector<Draw>& draws) const override {
    return training_clips(mapped(draws, &Draw::sample));
  }
  Examples test(int64_t begin, int64_t count) const override {
    return {test_.images.narrow(0, begin * frames_, count * frames_), test_.labels.narrow(0, begin, count)};
  }

  std::vector<double> sort_values(const std::string& key) const override {
    std::vector<double> values;
    for (int64_t i = 0; i < training_samples(); ++i) {
      const int64_t label = train_.labels.const_data_ptr<int64_t>()[i];
      values.push_back(static_cast<double>(key == "scene" ? scene_of(label) : label));
    }
    return values;
  }

  std::unique_ptr<Task> validation(const std::vector<int64_t>& training_samples) const override {
    auto task = std::make_unique<Motion>(*this);
    task->test_ = training_clips(training_samples);
    task->train_ = training_clips({});
    return task;
  }

  // Beside the usual: the share of clips whose motion (chance 1/8), direction in time (1/2) and scene (1/2)
  // is right.
  Json metrics(const at::Tensor& measured) const override {
    Json all = ClassificationTask::metrics(measured);
    all["motion_accuracy"] = share_alike(measured, motion_of);
    all["direction_accuracy"] = share_alike(measured, direction_of);
    all["scene_accuracy"] = share_alike(measured, scene_of);
    return all;
  }

 private:
  Examples training_clips(const std::vector<int64_t>& samples) const {
    const at::Tensor index = at::tensor(samples, at::kLong);
    return {train_.images.unflatten(0, {-1, frames_}).index_select(0, index).flatten(0, 1),
            train_.labels.index_select(0, index)};
  }

  Examples make(uint64_t seed, const char* purpose, int64_t count) const {
    Examples made{at::empty({count * frames_, 3, kSide, kSide}, at::kFloat), at::empty({count}, at::kLong)};
    const std::string order = std::string(purpose) + ".order";
    for (int64_t i = 0; i < count; ++i) {
      const auto block = static_cast<uint64_t>(i / classes()), place = static_cast<uint64_t>(i % classes());
      const int64_t label = Stream(seed, order, block).permutation(classes())[place];
      made.labels.mutable_data_ptr<int64_t>()[i] = label;
      make_clip(Stream(seed, purpose, static_cast<uint64_t>(i)), scene_, label, frames_,
                made.images.mutable_data_ptr<float>() + i * frames_ * kFrame);
    }
    return made;
  }

  int64_t frames_;
  Scene scene_;
  Examples train_, test_;
};

const Registered<Task> entry{{.name = "motion",
                              .summary = "clips of a moving thing, 8 motions in 2 scenes, made from the seed",
                              .labelled = Labelled::clips},
                             make<Task, Motion>};

}  // namespace bnlab::motion
