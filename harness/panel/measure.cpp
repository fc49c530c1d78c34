#include "harness/panel/measure.hpp"

#include <ATen/Parallel.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "harness/communicator/host/network.hpp"
#include "harness/communicator/thread_ranks.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/tasks/images/image_file.hpp"
#include "harness/training/rank.hpp"
#include "harness/training/safetensors.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// Small data sets on files, made the same everywhere, for the entries of the panel whose tasks read files.

constexpr int64_t kHeight = 20, kWidth = 24;

// A wavy picture of its own for each `seed`, and discs of brightness that move with it.
uint8_t value_at_place(int64_t seed, int64_t y, int64_t x, int64_t channel) {
  const double wave = std::sin(0.31 * static_cast<double>(y * (channel + 1) + 3 * seed)) +
                      std::cos(0.23 * static_cast<double>(x * (3 - channel) + 5 * seed));
  return static_cast<uint8_t>(128 + 40 * wave + static_cast<double>((seed * 7 + channel * 11) % 17));
}

Pixels picture(int64_t seed, int64_t height = kHeight, int64_t width = kWidth) {
  Pixels pixels;
  pixels.height = height;
  pixels.width = width;
  pixels.channels = 3;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c) pixels.values.push_back(value_at_place(seed, y, x, c));
  }
  return pixels;
}

// Blocks of the ids in turn.
Pixels label_map(int64_t seed, const std::vector<uint8_t>& ids, int64_t height = kHeight,
                 int64_t width = kWidth) {
  Pixels pixels;
  pixels.height = height;
  pixels.width = width;
  pixels.channels = 1;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const auto block = static_cast<size_t>(y / 7 + 2 * (x / 6) + seed);
      pixels.values.push_back(ids[block % ids.size()]);
    }
  }
  return pixels;
}

void write(const fs::path& file, const Pixels& pixels) {
  fs::create_directories(file.parent_path());
  write_png(file.string(), pixels);
}

void write_text(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}

void make_folder(const fs::path& root) {
  for (int64_t i = 0; i < 10; ++i) {
    const std::string name = (i % 3 == 0 ? "a_" : i % 3 == 1 ? "b_" : "c_") + std::to_string(i) + ".png";
    const fs::path split = root / (i < 7 ? "train" : "test");
    const int64_t taller = i == 8 ? 4 : 0;  // one picture has another size
    write(split / "images" / name, picture(i, kHeight + taller));
    write(split / "labels" / name, label_map(i, {0, 1, 2, 255}, kHeight + taller));
  }
}

void make_camvid(const fs::path& root) {
  for (int64_t i = 0; i < 9; ++i) {
    const std::string name = (i % 2 == 0 ? "0001TP_" : "0006R0_") + std::to_string(i) + ".png";
    const fs::path split = root / (i < 6 ? "train" : "test");
    write(split / "images" / name, picture(i, 2 * kHeight, 2 * kWidth));
    write(split / "labels" / name, label_map(i, {0, 1, 3, 5, 8, 11}, 2 * kHeight, 2 * kWidth));
  }
}

void make_voc(const fs::path& root) {
  std::string training, test;
  for (int64_t i = 0; i < 9; ++i) {
    const std::string name = "2008_00000" + std::to_string(i);
    const int64_t height = i == 8 ? kHeight + 4 : kHeight;
    write(root / "JPEGImages" / (name + ".jpg"), picture(i, height));
    write(root / "SegmentationClassAug" / (name + ".png"), label_map(i, {0, 12, 15, 255}, height));
    write(root / "SegmentationClass" / (name + ".png"), label_map(i, {0, 12, 15, 255}, height));
    (i < 6 ? training : test) += name + "\n";
  }
  write_text(root / "ImageSets/Segmentation/trainaug.txt", training);
  write_text(root / "ImageSets/Segmentation/val.txt", test);
}

void make_ade20k(const fs::path& root) {
  for (int64_t i = 0; i < 9; ++i) {
    const std::string split = i < 6 ? "training" : "validation";
    const std::string name = (i < 6 ? "ADE_train_0000000" : "ADE_val_0000000") + std::to_string(i);
    const int64_t height = i == 8 ? kHeight + 4 : kHeight;
    write(root / "images" / split / (name + ".jpg"), picture(i, height));
    write(root / "annotations" / split / (name + ".png"), label_map(i, {0, 1, 3, 150}, height));
  }
}

void make_cityscapes(const fs::path& root) {
  for (int64_t i = 0; i < 9; ++i) {
    const std::string split = i < 6 ? "train" : "val", city = i % 2 == 0 ? "aachen" : "bochum";
    const std::string name = city + "_000000_00000" + std::to_string(i);
    write(root / "leftImg8bit" / split / city / (name + "_leftImg8bit.png"), picture(i));
    write(root / "gtFine" / split / city / (name + "_gtFine_labelIds.png"), label_map(i, {7, 8, 26, 0}));
    write(root / "gtFine" / split / city / (name + "_gtFine_labelTrainIds.png"),
          label_map(i, {0, 2, 13, 255}));
  }
}

void make_image_folder(const fs::path& root) {
  for (int64_t i = 0; i < 12; ++i) {
    const fs::path split = root / (i < 8 ? "train" : "test");
    write(split / (i % 2 == 0 ? "cat" : "dog") / (std::to_string(i) + ".png"),
          picture(i, kHeight + i % 3, kWidth));
  }
}

void make_frames(const fs::path& root) {
  std::string training, test;
  for (int64_t i = 0; i < 6; ++i) {
    const std::string clip = "v" + std::to_string(i);
    for (int64_t f = 1; f <= 5; ++f)
      write(root / clip / ("img_0000" + std::to_string(f) + ".jpg"), picture(9 * i + f));
    (i < 4 ? training : test) += clip + " 5 " + std::to_string(i % 2) + "\n";
  }
  write_text(root / "train.txt", training);
  write_text(root / "test.txt", test);
}

// Files of the published sizes: a dozen images over and over.
void make_cifar(const fs::path& root, const std::vector<std::string>& names,
                const std::vector<int64_t>& records, int64_t label_bytes, int64_t classes) {
  constexpr int64_t kSide = 32, kOurs = 12;
  for (size_t n = 0; n < names.size(); ++n) {
    std::string bytes;
    for (int64_t i = 0; i < kOurs; ++i) {
      bytes += std::string(static_cast<size_t>(label_bytes), static_cast<char>(i * 3 % classes));
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t p = 0; p < kSide * kSide; ++p)
          bytes += static_cast<char>(value_at_place(i + static_cast<int64_t>(n), p / kSide, p % kSide, c));
    }
    std::string all;
    for (int64_t i = 0; i < records[n]; i += kOurs) all += bytes;
    all.resize(static_cast<size_t>(records[n] * (label_bytes + 3 * kSide * kSide)));
    write_text(root / names[n], all);
  }
}

// Writes below `folder`, in the layouts that the tasks read: mydata (folder), camvid, VOCdevkit,
// ADEChallengeData2016, cityscapes, pets (image_folder), clips (frames), and the binary files of CIFAR-10 and
// CIFAR-100. Images are PNG files, whatever their names end in: readers go by content. Throws Error
// (environment) where this build has no libpng.
void make_files(const fs::path& folder, const std::string& task) {
  if (task == "folder") make_folder(folder / "mydata");
  if (task == "camvid") make_camvid(folder / "camvid");
  if (task == "voc") make_voc(folder / "VOCdevkit/VOC2012");
  if (task == "ade20k") make_ade20k(folder / "ADEChallengeData2016");
  if (task == "cityscapes") make_cityscapes(folder / "cityscapes");
  if (task == "image_folder") make_image_folder(folder / "pets");
  if (task == "frames") make_frames(folder / "clips");
  if (task == "cifar10") {
    make_cifar(folder / "cifar-10-batches-bin",
               {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                "data_batch_5.bin", "test_batch.bin"},
               {10000, 10000, 10000, 10000, 10000, 10000}, 1, 10);
  }
  if (task == "cifar100")
    make_cifar(folder / "cifar-100-binary", {"train.bin", "test.bin"}, {50000, 10000}, 2, 100);
}

// The runs of the panel.

constexpr const char* kWeightsOf = "weights of ";  // in front of an entry, as the file of init_from

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (fs::temp_directory_path() / "bnlab-panel-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error(Error::Kind::environment, "cannot make " + name);
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// While it lives, operators use one thread each.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_ = at::get_num_threads();
};

// The entry's ranks as threads of this process; the report of rank 0.
RankReport train(const PanelEntry& entry, const RunSpec& spec, const fs::path& data, const fs::path& run) {
  const LoopbackSocket socket;
  std::vector<RankReport> reports(static_cast<size_t>(entry.ranks));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < entry.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RankJob job;
      job.spec = spec;
      job.rendezvous.rank = rank;
      job.rendezvous.size = entry.ranks;
      job.rendezvous.port = socket.port();
      job.rendezvous.listen_fd =
          rank == 0 && entry.ranks > 1 ? ::dup(socket.fd()) : -1;  // the store closes it
      job.data_dir = data.string();
      job.run_dir = run.string();
      reports[static_cast<size_t>(rank)] = run_rank(job);
    });
  }
  threads.clear();  // joins them
  return reports[0];
}

// The sum over all elements, each times a number of its own, of the tensors whose names end like one of
// `endings` (of all others, where `others`).
double projected(const std::vector<NamedTensor>& tensors, const std::vector<std::string>& endings,
                 bool others = false) {
  double sum = 0;
  int64_t place = 0;
  for (const auto& [name, tensor] : tensors) {
    const bool is_one =
        std::ranges::any_of(endings, [&](const std::string& end) { return name.ends_with(end); });
    if (is_one == others) continue;
    const at::Tensor values = tensor.to(at::kDouble).reshape({-1});
    const at::Tensor factors =
        at::arange(place, place + values.numel(), at::kDouble).mul_(0.7390851332).cos_();
    sum += values.dot(factors).item<double>();
    place += values.numel();
  }
  return sum;
}

Json rounded(
    double value) {  // to digits that another processor may still round otherwise, which the tolerance allows
  if (!std::isfinite(value)) return std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
  char text[32];
  std::snprintf(text, sizeof text, "%.11g", value);
  return Json(std::strtod(text, nullptr));
}

void add_numbers(const fs::path& run, const Json& result, Json& values) {
  std::ifstream log(run / kMetricsFile);
  Json last;
  for (std::string line; std::getline(log, line);) {
    const Json told = Json::parse(line);
    if (told.at("kind") != "train") continue;
    values["loss " + std::to_string(told.at("step").get<int64_t>())] =
        told.at("loss").is_number() ? rounded(told.at("loss").get<double>()) : told.at("loss");
    last = told.value("gradient_norm", Json());
  }
  if (last.is_number()) values["gradient norm"] = rounded(last.get<double>());
  for (const auto& [population, metrics] : result.at("final").items()) {
    for (const auto& [metric, value] : metrics.items())
      if (value.is_number() && metric != "mean_dice")  // follows from the counts that mean_iou is of
        values[population + " " + metric] = rounded(value.get<double>());
  }
  const Json& history = result.at("history");  // the last entry is `final`, where no weights are selected
  const size_t last_ones = result.contains("selected") ? 0 : 1;
  for (size_t i = 0; i + last_ones < history.size(); ++i) {
    const std::string step = "step " + std::to_string(history[i].at("step").get<int64_t>()) + " ";
    const Json& headline = history[i].at(result.at("headline").get<std::string>());
    for (const auto& [population, value] : headline.items())
      if (value.is_number()) values[step + population] = rounded(value.get<double>());
  }
  const std::vector<NamedTensor> weights = read_safetensors((run / kWeightsFile).string());
  values["weights"] = rounded(projected(weights, {".running_mean", ".running_var"}, true));
  const auto has_statistics = [](const NamedTensor& t) { return t.name.ends_with(".running_mean"); };
  if (std::ranges::any_of(weights, has_statistics)) {
    values["running_mean"] = rounded(projected(weights, {".running_mean"}));
    values["running_var"] = rounded(projected(weights, {".running_var"}));
  }
  if (fs::exists(run / kPopulationsFile)) {
    const std::vector<NamedTensor> pairs = read_safetensors((run / kPopulationsFile).string());
    values["populations' means"] = rounded(projected(pairs, {".running_mean"}));
    values["populations' variances"] = rounded(projected(pairs, {".running_var"}));
  }
}

Json keys_with_weights(const PanelEntry& entry, const fs::path& scratch) {
  Json keys = entry.keys;
  const Json* file = find(keys, "init_from.file");
  if (file == nullptr || !file->is_string() || !file->get<std::string>().starts_with(kWeightsOf)) return keys;
  const PanelEntry& from = panel_entry(file->get<std::string>().substr(std::string(kWeightsOf).size()));
  const fs::path run = scratch / "weights";
  fs::create_directories(run);
  train(from, read_resolved(from.keys), "", run);
  set(keys, "init_from.file", (run / kWeightsFile).string());
  return keys;
}

}  // namespace

std::optional<Json> measure(const PanelEntry& entry, std::string& why) {
  static const bool prepared = (prepare_thread_ranks(), true);
  (void)prepared;
  why.clear();
#ifndef BNLAB_WITH_IMAGES
  if (entry.reads_files) {
    why = "this build has no libjpeg and libpng";
    return std::nullopt;
  }
#endif
  const OneThread one_thread;
  const ScratchFolder scratch;
  const fs::path data = scratch.path() / "data", run = scratch.path() / "run";
  fs::create_directories(data);
  fs::create_directories(run);
  if (entry.reads_files) make_files(data, lifted(entry.keys.at("task")).at("name").get<std::string>());
  const RankReport report = train(entry, read_resolved(keys_with_weights(entry, scratch.path())), data, run);
  Json values = Json::object();
  if (report.status != Status::ok) values["outcome"] = name(report.status) + ": " + report.message;
  if (!report.result.is_null()) add_numbers(run, report.result, values);
  return values;
}

}  // namespace bnlab
