#include "harness/training/safetensors.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>

#include "harness/components/parameters.hpp"
#include "harness/error.hpp"
#include "harness/records/run_folder.hpp"

namespace bnlab {
namespace {

constexpr uint64_t kLongestHeader = 100'000'000;  // bytes, as other readers of the format have it

const std::map<std::string, at::ScalarType>& dtypes() {
  static const std::map<std::string, at::ScalarType> all{{"F64", at::kDouble},
                                                         {"F32", at::kFloat},
                                                         {"BF16", at::kBFloat16},
                                                         {"F16", at::kHalf},
                                                         {"I64", at::kLong}};
  return all;
}

std::string dtype_name(at::ScalarType type) {
  for (const auto& [name, dtype] : dtypes()) {
    if (dtype == type) {
      return name;
    }
  }
  throw Error(Error::Kind::refused, std::string("safetensors: no name for dtype ") + c10::toString(type));
}

constexpr uint64_t kLongestExtent = uint64_t{1} << 40;

// Where a tensor lies behind the header.
struct Entry {
  std::string name;
  at::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin, end;
};

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {
    std::error_code none;
    size_ =
        std::filesystem::file_size(file, none);  // fails for a pipe, whose opening would wait for a writer
    if (!none) {
      in_.open(file, std::ios::binary);
    }
    if (!in_ || none) {
      throw Error(Error::Kind::data, file_ + ": cannot be read; is it there, and a file?");
    }
  }

  std::vector<NamedTensor> tensors() {
    std::vector<Entry> entries;
    const Json header = read_header();
    for (const auto& [name, value] : header.items()) {
      if (name != "__metadata__") {
        entries.push_back(entry(name, value));
      }
    }
    check_tiling(entries);
    std::vector<NamedTensor> all;
    for (const Entry& e : entries) {
      at::Tensor tensor = at::empty(e.shape, e.dtype);
      in_.seekg(static_cast<std::streamoff>(data_begin_ + e.begin));
      in_.read(static_cast<char*>(tensor.mutable_data_ptr()), static_cast<std::streamsize>(e.end - e.begin));
      if (!in_) {
        fail(e.name + ": cannot be read");
      }
      all.push_back({e.name, tensor});
    }
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Error::Kind::data, file_ + ": not a safetensors file that can be used: " + what);
  }

  Json read_header() {
    uint64_t length = 0;
    for (int i = 0; i < 8; ++i) {
      length |= static_cast<uint64_t>(static_cast<unsigned char>(in_.get())) << (8 * i);
    }
    if (!in_ || length > kLongestHeader || length > size_ - 8) {
      fail("the header's length does not fit the file's " + std::to_string(size_) + " bytes");
    }
    std::string text(length, ' ');
    in_.read(text.data(), static_cast<std::streamsize>(length));
    Json header = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!header.is_object()) {
      fail("the header is no JSON object");
    }
    data_begin_ = 8 + length;
    return header;
  }

  Entry entry(const std::string& name, const Json& value) const {
    const auto counts = [](const Json& list) {
      return list.is_array() &&
             std::ranges::all_of(list, [](const Json& n) { return n.is_number_unsigned(); });
    };
    const bool complete = value.is_object() && value.contains("dtype") && value["dtype"].is_string() &&
                          value.contains("shape") && counts(value["shape"]) &&
                          value.contains("data_offsets") && counts(value["data_offsets"]) &&
                          value["data_offsets"].size() == 2;
    if (!complete) {
      fail(name + ": expected dtype, shape and data_offsets, got " + shown(value));
    }
    const auto dtype = dtypes().find(value["dtype"].get<std::string>());
    if (dtype == dtypes().end()) {
      fail(name + ": expected dtype F64, F32, BF16, F16 or I64, got " + shown(value["dtype"]));
    }
    const uint64_t begin = value["data_offsets"][0], end = value["data_offsets"][1];
    const uint64_t most = size_ - data_begin_;
    uint64_t bytes = c10::elementSize(dtype->second);
    std::vector<int64_t> shape;
    for (const Json& n : value["shape"]) {
      const uint64_t extent = n;
      if (extent > kLongestExtent) {
        fail(name + ": shape " + shown(value["shape"]) + " is too large");
      }
      // Any number above `most` will do where the product is larger, or overflows.
      bytes = extent != 0 && bytes > most / extent ? most + 1 : bytes * extent;
      shape.push_back(static_cast<int64_t>(extent));
    }
    if (begin > end || end > most || end - begin != bytes) {
      fail(name + ": data_offsets " + shown(value["data_offsets"]) + " do not hold shape " +
           shown(value["shape"]) + " of " + dtype->first + " in the file's " + std::to_string(most) +
           " bytes of data");
    }
    return {name, dtype->second, shape, begin, end};
  }

  void check_tiling(std::vector<Entry>& entries) const {
    std::ranges::stable_sort(entries, [](const Entry& a, const Entry& b) { return a.begin < b.begin; });
    uint64_t end = 0;
    for (const Entry& e : entries) {
      if (e.begin != end) {
        fail(e.name + ": its data begin at " + std::to_string(e.begin) + ", expected " + std::to_string(end));
      }
      end = e.end;
    }
    if (data_begin_ + end != size_) {
      fail("its tensors end at byte " + std::to_string(data_begin_ + end) + " of " + std::to_string(size_));
    }
  }

  std::string file_;
  std::ifstream in_;
  uint64_t size_ = 0;
  uint64_t data_begin_ = 0;
};

}  // namespace

std::vector<NamedTensor> read_safetensors(const std::string& file) {
  return Reader(file).tensors();
}

int64_t write_safetensors(const std::string& file, const std::vector<NamedTensor>& tensors) {
  Json header = Json::object();
  std::vector<at::Tensor> data;
  int64_t offset = 0;
  for (const NamedTensor& t : tensors) {
    data.push_back(t.tensor.detach().cpu().contiguous());
    const auto bytes = static_cast<int64_t>(data.back().nbytes());
    header[t.name] = {{"dtype", dtype_name(t.tensor.scalar_type())},
                      {"shape", t.tensor.sizes().vec()},
                      {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // aligns the data
  const uint64_t length = text.size();
  std::string length_bytes;
  for (int i = 0; i < 8; ++i) {
    length_bytes += static_cast<char>(length >> (8 * i) & 0xff);
  }
  text.insert(0, length_bytes);
  text.reserve(text.size() + static_cast<size_t>(offset));
  for (const at::Tensor& t : data) {
    text.append(static_cast<const char*>(t.const_data_ptr()), t.nbytes());
  }
  write_atomically(file, text);
  return static_cast<int64_t>(text.size());
}

}  // namespace bnlab
