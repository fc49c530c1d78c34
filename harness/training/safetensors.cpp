#include "harness/training/safetensors.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "harness/components/parameters.hpp"
#include "harness/error.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/training/bounded_json.hpp"

namespace bnlab {
namespace {

constexpr const char* kMetadata = "__metadata__";
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

// An object of objects of lists, or of texts (the metadata): nothing is nested deeper than that.
constexpr size_t kDeepestHeader = 3;
constexpr size_t kMostDimensions = 32;

class Reader {
 public:
  Reader(const std::string& file, std::istream& in, uint64_t size) : file_(file), in_(in), size_(size) {}

  SafeTensors read() {
    SafeTensors all;
    std::vector<Entry> entries;
    const nlohmann::json header = read_header();
    for (const auto& [name, value] : header.items()) {
      if (name != kMetadata) {
        entries.push_back(entry(name, value));
      } else if (value.is_object()) {
        for (const auto& [key, text] : value.items()) {
          all.metadata[key] = text.is_string() ? text.get<std::string>() : text.dump();
        }
      }
    }
    check_tiling(entries);
    for (const Entry& e : entries) {
      at::Tensor tensor = at::empty(e.shape, e.dtype);
      in_.seekg(static_cast<std::streamoff>(data_begin_ + e.begin));
      in_.read(static_cast<char*>(tensor.mutable_data_ptr()), static_cast<std::streamsize>(e.end - e.begin));
      if (!in_) {
        fail(e.name + ": cannot be read");
      }
      all.tensors.push_back({e.name, tensor});
    }
    return all;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(Error::Kind::data, file_ + ": not a safetensors file that can be used: " + what);
  }

  nlohmann::json read_header() {
    uint64_t length = 0;
    for (int i = 0; i < 8; ++i) {
      length |= static_cast<uint64_t>(static_cast<unsigned char>(in_.get())) << (8 * i);
    }
    if (!in_ || length > kLongestHeader || length > size_ - 8) {
      fail("the header's length does not fit the file's " + std::to_string(size_) + " bytes");
    }
    std::string text(length, ' ');
    in_.read(text.data(), static_cast<std::streamsize>(length));
    nlohmann::json header;
    try {
      header = parse_bounded_json(text, kDeepestHeader);
    } catch (const Error& error) {
      fail(std::string("of the header: ") + error.what());
    }
    if (!header.is_object()) {
      fail("the header is no JSON object");
    }
    data_begin_ = 8 + length;
    return header;
  }

  Entry entry(const std::string& name, const nlohmann::json& value) const {
    const auto counts = [](const nlohmann::json& list) {
      return list.is_array() &&
             std::ranges::all_of(list, [](const nlohmann::json& n) { return n.is_number_unsigned(); });
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
    if (value["shape"].size() > kMostDimensions) {
      fail(name + ": expected at most " + std::to_string(kMostDimensions) + " dimensions, got " +
           std::to_string(value["shape"].size()));
    }
    uint64_t elements = 1;  // if those extents that are 0 were 1
    for (const nlohmann::json& n : value["shape"]) {
      const uint64_t extent = n;
      if (extent > kLongestExtent || elements > kLongestExtent / std::max<uint64_t>(extent, 1)) {
        fail(name + ": shape " + shown(value["shape"]) + " is too large");
      }
      elements *= std::max<uint64_t>(extent, 1);
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
    const auto place = [](const Entry& e) {
      return std::pair(e.begin, e.end);
    };  // an empty one before the next
    std::ranges::sort(entries, {}, place);
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

  const std::string& file_;
  std::istream& in_;
  uint64_t size_;
  uint64_t data_begin_ = 0;
};

}  // namespace

std::vector<NamedTensor> read_safetensors(const std::string& file) {
  std::error_code none;
  const uint64_t size =
      std::filesystem::file_size(file, none);  // fails for a pipe, whose opening would wait for a writer
  std::ifstream in;
  if (!none) {
    in.open(file, std::ios::binary);
  }
  if (!in || none) {
    throw Error(Error::Kind::data, file + ": cannot be read; is it there, and a file?");
  }
  return Reader(file, in, size).read().tensors;
}

SafeTensors parse_safetensors(std::string bytes, const std::string& file) {
  const uint64_t size = bytes.size();
  std::istringstream in(std::move(bytes));
  return Reader(file, in, size).read();
}

std::string safetensors_bytes(const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  std::string header = metadata.empty() ? "" : Json(kMetadata).dump() + ":" + Json(metadata).dump();
  std::vector<at::Tensor> data;
  int64_t offset = 0;
  for (const NamedTensor& t : tensors) {
    data.push_back(t.tensor.detach().cpu().contiguous());
    const auto bytes = static_cast<int64_t>(data.back().nbytes());
    const Json entry = {{"dtype", dtype_name(t.tensor.scalar_type())},
                        {"shape", t.tensor.sizes().vec()},
                        {"data_offsets", {offset, offset + bytes}}};
    header += (header.empty() ? "" : ",") + Json(t.name).dump() + ":" + entry.dump();
    offset += bytes;
  }
  std::string text = "{" + header + "}";
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
  return text;
}

int64_t write_safetensors(const std::string& file, const std::vector<NamedTensor>& tensors) {
  const std::string bytes = safetensors_bytes(tensors);
  write_atomically(file, bytes);
  return static_cast<int64_t>(bytes.size());
}

}  // namespace bnlab
