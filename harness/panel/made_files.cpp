#include "harness/panel/made_files.hpp"

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "harness/tasks/images/write_png.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

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
    for (int64_t x = 0; x < width; ++x) {
      for (int64_t c = 0; c < 3; ++c) pixels.values.push_back(value_at_place(seed, y, x, c));
    }
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
    const int64_t taller = i == 8 ? 4 : 0;  // of another size
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
    write(root / "JPEGImages" / (name + ".jpg"), picture(i));
    write(root / "SegmentationClassAug" / (name + ".png"), label_map(i, {0, 12, 15, 255}));
    write(root / "SegmentationClass" / (name + ".png"), label_map(i, {0, 12, 15, 255}));
    (i < 6 ? training : test) += name + "\n";
  }
  write_text(root / "ImageSets/Segmentation/trainaug.txt", training);
  write_text(root / "ImageSets/Segmentation/val.txt", test);
}

void make_ade20k(const fs::path& root) {
  for (int64_t i = 0; i < 9; ++i) {
    const std::string split = i < 6 ? "training" : "validation";
    const std::string name = (i < 6 ? "ADE_train_0000000" : "ADE_val_0000000") + std::to_string(i);
    write(root / "images" / split / (name + ".jpg"), picture(i));
    write(root / "annotations" / split / (name + ".png"), label_map(i, {0, 1, 3, 150}));
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
      for (int64_t c = 0; c < 3; ++c) {
        for (int64_t p = 0; p < kSide * kSide; ++p) {
          bytes += static_cast<char>(value_at_place(i + static_cast<int64_t>(n), p / kSide, p % kSide, c));
        }
      }
    }
    std::string all;
    for (int64_t i = 0; i < records[n]; i += kOurs) all += bytes;
    all.resize(static_cast<size_t>(records[n] * (label_bytes + 3 * kSide * kSide)));
    write_text(root / names[n], all);
  }
}

}  // namespace

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

}  // namespace bnlab
