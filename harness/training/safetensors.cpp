#include "harness/training/safetensors.hpp"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "harness/components/parameters.hpp"
#include "harness/experiment/weights_file.hpp"
#include "harness/models/exported_graph.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

constexpr const char* kMetadata = "__metadata__";
constexpr uint64_t kLongestHeader = 100'000'000;  // bytes, as other readers of the format have it
constexpr uint64_t kLongestExtent = uint64_t{1} << 40;
// An object of objects of lists, or of texts (the metadata): nothing is nested deeper than that.
constexpr size_t kDeepestHeader = 3;
constexpr size_t kMostDimensions = 32;

const std::map<std::string, at::ScalarType>& dtypes() {
  static const std::map<std::string, at::ScalarType> all{{"F64", at::kDouble},
                                                         {"F32", at::kFloat},
                                                         {"BF16", at::kBFloat16},
                                                         {"F16", at::kHalf},
                                                         {"I64", at::kLong}};
  return all;
}

std::string dtype_name(at::ScalarType type) {
  for (const auto& [name, dtype] : dtypes())
    if (dtype == type) return name;
  throw Error(Error::Kind::refused, std::string("safetensors: no name for dtype ") + c10::toString(type));
}

[[noreturn]] void unusable(const std::string& file, const std::string& what) {
  throw Error(Error::Kind::data,
              file + ": not a safetensors file that can be used: " + what + pytorch_cure(file));
}

// Builds the JSON of a header, which anybody may have made: no deeper than kDeepestHeader, no key twice in an
// object. Keys are sorted and found by halving, so that a hundred thousand of them are read in no time.
// Throws Error (data): what is wrong with the text, without its name.
class HeaderBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  nlohmann::json take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t& value) override { return put(value); }
  bool start_object(size_t) override { return open(nlohmann::json::object()); }
  bool start_array(size_t) override { return open(nlohmann::json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (open_.back()->contains(name))
      throw Error(Error::Kind::data, "it has the key " + nlohmann::json(name).dump() + " twice");
    key_ = name;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    throw Error(Error::Kind::data, "it is no JSON at byte " + std::to_string(position));
  }

 private:
  nlohmann::json& placed(nlohmann::json value) {
    if (open_.empty()) return root_ = std::move(value);
    nlohmann::json& around = *open_.back();
    if (around.is_array()) {
      around.push_back(std::move(value));
      return around.back();
    }
    return around[key_] = std::move(value);
  }
  bool put(nlohmann::json value) {
    placed(std::move(value));
    return true;
  }
  // What is around an open value does not grow before it is closed, so that the pointers hold.
  bool open(nlohmann::json empty) {
    if (open_.size() == kDeepestHeader) {
      throw Error(Error::Kind::data,
                  "it is nested deeper than " + std::to_string(kDeepestHeader) + " levels");
    }
    open_.push_back(&placed(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  nlohmann::json root_;
  std::vector<nlohmann::json*> open_;  // from the outermost to the one that is being read
  std::string key_;                    // names the next value of an object
};

class HeaderReader {
 public:
  using Entry = SafeTensorsHeader::Entry;

  HeaderReader(const std::string& file, uint64_t data_bytes) : file_(file), data_bytes_(data_bytes) {}

  SafeTensorsHeader read(const std::string& text) const {
    SafeTensorsHeader header;
    const nlohmann::json all = parsed(text);
    for (const auto& [name, value] : all.items()) {
      if (name != kMetadata)
        header.tensors.push_back(entry(name, value));
      else if (value.is_object())
        for (const auto& [key, held] : value.items())
          header.metadata[key] = held.is_string() ? held.get<std::string>() : held.dump();
    }
    check_tiling(header.tensors);
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { unusable(file_, what); }

  nlohmann::json parsed(const std::string& text) const {
    HeaderBuilder builder;
    try {
      nlohmann::json::sax_parse(text, &builder);
    } catch (const Error& error) {
      fail(std::string("of the header: ") + error.what());
    }
    nlohmann::json header = builder.take();
    if (!header.is_object()) fail("the header is no JSON object");
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
    if (!complete) fail(name + ": expected dtype, shape and data_offsets, got " + shown(value));
    const auto dtype = dtypes().find(value["dtype"].get<std::string>());
    if (dtype == dtypes().end())
      fail(name + ": expected dtype F64, F32, BF16, F16 or I64, got " + shown(value["dtype"]));
    const uint64_t begin = value["data_offsets"][0], end = value["data_offsets"][1];
    uint64_t bytes = c10::elementSize(dtype->second);
    std::vector<int64_t> shape;
    if (value["shape"].size() > kMostDimensions) {
      fail(name + ": expected at most " + std::to_string(kMostDimensions) + " dimensions, got " +
           std::to_string(value["shape"].size()));
    }
    uint64_t elements = 1;  // if those extents that are 0 were 1
    for (const nlohmann::json& n : value["shape"]) {
      const uint64_t extent = n;
      if (extent > kLongestExtent || elements > kLongestExtent / std::max<uint64_t>(extent, 1))
        fail(name + ": shape " + shown(value["shape"]) + " is too large");
      elements *= std::max<uint64_t>(extent, 1);
      // Any number above data_bytes_ will do where the product is larger, or overflows.
      bytes = extent != 0 && bytes > data_bytes_ / extent ? data_bytes_ + 1 : bytes * extent;
      shape.push_back(static_cast<int64_t>(extent));
    }
    if (begin > end || end > data_bytes_ || end - begin != bytes) {
      fail(name + ": data_offsets " + shown(value["data_offsets"]) + " do not hold shape " +
           shown(value["shape"]) + " of " + dtype->first + " in the file's " + std::to_string(data_bytes_) +
           " bytes of data");
    }
    return {.name = name, .dtype = dtype->second, .shape = shape, .begin = begin, .end = end};
  }

  void check_tiling(std::vector<Entry>& entries) const {
    const auto place = [](const Entry& e) {
      return std::pair(e.begin, e.end);
    };  // an empty one before the next
    std::ranges::sort(entries, {}, place);
    uint64_t end = 0;
    for (const Entry& e : entries) {
      if (e.begin != end)
        fail(e.name + ": its data begin at " + std::to_string(e.begin) + ", expected " + std::to_string(end));
      end = e.end;
    }
    if (end != data_bytes_) {
      fail("its tensors end at byte " + std::to_string(end) + " of " + std::to_string(data_bytes_) +
           " behind the header");
    }
  }

  const std::string& file_;
  uint64_t data_bytes_;
};

}  // namespace

SafeTensorsHeader parse_safetensors_header(const std::string& text, uint64_t data_bytes,
                                           const std::string& file) {
  return HeaderReader(file, data_bytes).read(text);
}

SafeTensorsFile::SafeTensorsFile(const std::string& file) : file_(file) {
  std::error_code none;
  // Fails for a pipe, whose opening would wait for a writer.
  const uint64_t size = std::filesystem::file_size(file, none);
  if (!none) in_.open(file, std::ios::binary);
  if (!in_ || none) throw Error(Error::Kind::data, file + ": cannot be read; is it there, and a file?");
  uint64_t length = 0;
  for (int i = 0; i < 8; ++i)
    length |= static_cast<uint64_t>(static_cast<unsigned char>(in_.get())) << (8 * i);
  if (!in_ || length > kLongestHeader || length > size - 8)
    unusable(file, "the header's length does not fit the file's " + std::to_string(size) + " bytes");
  header_text_.resize(length);
  in_.read(header_text_.data(), static_cast<std::streamsize>(length));
  data_begin_ = 8 + length;
  data_bytes_ = size - data_begin_;
  header_ = parse_safetensors_header(header_text_, data_bytes_, file);
}

at::Tensor SafeTensorsFile::read(const SafeTensorsHeader::Entry& entry) {
  at::Tensor tensor = at::empty(entry.shape, entry.dtype);
  in_.seekg(static_cast<std::streamoff>(data_begin_ + entry.begin));
  in_.read(static_cast<char*>(tensor.mutable_data_ptr()),
           static_cast<std::streamsize>(entry.end - entry.begin));
  if (!in_) unusable(file_, entry.name + ": cannot be read");
  return tensor;
}

std::vector<NamedTensor> read_safetensors(const std::string& file) {
  SafeTensorsFile open(file);
  std::vector<NamedTensor> tensors;
  for (const SafeTensorsHeader::Entry& entry : open.header().tensors)
    tensors.push_back({entry.name, open.read(entry)});
  return tensors;
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
  for (int i = 0; i < 8; ++i) length_bytes += static_cast<char>(length >> (8 * i) & 0xff);
  text.insert(0, length_bytes);
  text.reserve(text.size() + static_cast<size_t>(offset));
  for (const at::Tensor& t : data) text.append(static_cast<const char*>(t.const_data_ptr()), t.nbytes());
  return text;
}

int64_t write_safetensors(const std::string& file, const std::vector<NamedTensor>& tensors) {
  const std::string bytes = safetensors_bytes(tensors);
  write_atomically(file, bytes);
  return static_cast<int64_t>(bytes.size());
}

std::map<std::string, at::Tensor> tensors_of_file(const std::string& file) {
  std::map<std::string, at::Tensor> tensors;
  for (NamedTensor& each : read_safetensors(file)) tensors[each.name] = std::move(each.tensor);
  return tensors;
}

}  // namespace bnlab
