// Every reader of files that people bring, on damaged ones: images, label maps, lists, weights, checkpoints.
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <bnlab/checkpoint.hpp>

#include "harness/tasks/images/image_file.hpp"
#include "harness/tasks/images/listing.hpp"
#include "harness/training/safetensors.hpp"
#include "tests/fuzz/mutations.hpp"

#ifdef BNLAB_WITH_IMAGES

#include <zlib.h>

#include "tests/tasks/write_images.hpp"

namespace bnlab::data_readers_test {
namespace {

class DataReaders : public ::testing::Test {
 protected:
  std::string contents() const {
    std::ifstream in(file_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  template <class Read>
  void expect_named(const std::vector<std::string>& texts, const Read& read) const {
    test::expect_named_errors(texts, file_, [&](const std::string& text) {
      std::filesystem::remove(file_);
      test::write_bytes(file_, text);
      read(file_);
    });
  }

  test::TemporaryFolder folder_;
  std::string file_ = folder_.path("damaged");
};

// Of a PNG the chunks with their right checksums, so that more than these is tried.
std::string with_checksums(std::string png) {
  const auto number = [&](size_t at) {
    size_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(png[at + i]);
    return value;
  };
  for (size_t at = 8; png.size() >= 12 && at <= png.size() - 12;) {
    const size_t count = number(at);
    if (count > png.size() - 12 - at) break;
    const auto sum =
        crc32(0, reinterpret_cast<const Bytef*>(png.data()) + at + 4, static_cast<uInt>(count + 4));
    for (size_t i = 0; i < 4; ++i) png[at + 8 + count + i] = static_cast<char>(sum >> (24 - 8 * i));
    at += count + 12;
  }
  return png;
}

TEST_F(DataReaders, Images) {
  std::vector<std::string> texts;
  for (const auto& [colour, channels, depth] : {std::tuple(PNG_COLOR_TYPE_RGB, 3, 8),
                                                {PNG_COLOR_TYPE_RGB_ALPHA, 8, 16},
                                                {PNG_COLOR_TYPE_GRAY, 1, 8},
                                                {PNG_COLOR_TYPE_GRAY, 2, 16},
                                                {PNG_COLOR_TYPE_PALETTE, 1, 8}}) {
    test::Picture picture{9, 11, {}};
    for (int i = 0; i < 9 * 11 * channels; ++i) picture.values.push_back(static_cast<uint8_t>(i * i / 7));
    test::write_png(file_, picture, colour, depth);
    texts.push_back(contents());
    if (channels == 3) {
      for (const bool progressive : {false, true}) {
        test::write_jpeg(file_, picture, progressive);
        test::add_exif(file_, test::exif_data(6));
        texts.push_back(contents());
      }
    }
  }
  const auto labels = [](const std::string& file) { return read_label_file(file).pixels; };
  for (const auto reader : {read_rgb, read_label_ids, +labels}) {
    expect_named(texts, [&](const std::string& file) {
      test::write_bytes(file, with_checksums(contents()));
      const Pixels read = reader(file);
      EXPECT_EQ(read.values.size(), static_cast<size_t>(read.height * read.width * read.channels));
    });
  }
}

TEST_F(DataReaders, Lists) {
  for (const char* name :
       {"images/a.png", "labels/a.png", "images/m\xc3\xbcller.png", "labels/mu\xcc\x88ller.png"})
    test::write_bytes(folder_.path(name), "x");
  const std::filesystem::path root = folder_.path();
  expect_named({"a\nm\xc3\xbcller\r\n",
                "\xef\xbb\xbfimages/a.png labels/a.png\n/home/images/a.png C:\\labels\\a.png\n"},
               [&](const std::string& list) {
                 refuse_faults(read_list(list, root, {root / "images"}, {root / "labels"}));
               });
}

TEST_F(DataReaders, Weights) {
  const std::string text = safetensors_bytes({{"weight", at::arange(6, at::kFloat).view({2, 3})},
                                              {"count", at::ones({}, at::kLong)},
                                              {"none", at::ones({0, 4})}},
                                             {{"format", "pt"}});
  expect_named({text}, [](const std::string& file) { read_safetensors(file); });
}

TEST_F(DataReaders, Checkpoints) {
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
  save_state_dict(*net, file_);
  const std::string archive = contents();
  // As PyTorch wrote it before 1.6: three pickles about the format, the dictionary, the storages' keys, their
  // elements.
  const std::string stream = std::string(
                                 "\x80\x02\x8a\nl\xfc\x9c"
                                 "F\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}X\r\0\0\0little_endian\x88s.",
                                 45) +
                             std::string(
                                 "\x80\x02}X\x06\0\0\0weightctorch._utils\n_rebuild_tensor_v2\n(("
                                 "X\x07\0\0\0storagectorch\nFloatStorage\n",
                                 81) +
                             std::string(
                                 "X\x01\0\0\0"
                                 "7X\x06\0\0\0cuda:0K\x02NtQK\0K\x02\x85K\x01\x85\x89"
                                 "ccollections\nOrderedDict\n)RtRs.",
                                 62) +
                             std::string(
                                 "\x80\x02]X\x01\0\0\0"
                                 "7a.\x02\0\0\0\0\0\0\0\0\0\x80?\0\0\0@",
                                 27);
  test::write_bytes(file_, stream);
  torch::nn::Module one("one");
  one.register_parameter("weight", at::zeros({2}));
  load_state_dict(one, file_);
  EXPECT_EQ(one.named_parameters()["weight"].sum().item<float>(), 3);
  expect_named({archive, stream}, [&](const std::string& file) {
    const bool archived = contents().starts_with("PK");
    load_state_dict(archived ? static_cast<torch::nn::Module&>(*net) : one, file);
  });
}

}  // namespace
}  // namespace bnlab::data_readers_test

#endif
