#include "harness/training/safetensors.hpp"

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "harness/error.hpp"

namespace bnlab {
namespace {

const char* dtype_name(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "F64";
    case at::kFloat:
      return "F32";
    case at::kBFloat16:
      return "BF16";
    case at::kHalf:
      return "F16";
    case at::kLong:
      return "I64";
    default:
      throw Error(Error::Kind::refused, std::string("safetensors: no name for dtype ") + c10::toString(type));
  }
}

}  // namespace

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
  const std::string temporary = file + ".tmp";
  {
    std::ofstream out(temporary, std::ios::binary);
    const auto length = static_cast<uint64_t>(text.size());
    for (int i = 0; i < 8; ++i) {
      out.put(static_cast<char>(length >> (8 * i) & 0xff));
    }
    out << text;
    for (const at::Tensor& t : data) {
      out.write(static_cast<const char*>(t.const_data_ptr()), static_cast<std::streamsize>(t.nbytes()));
    }
    if (!out.flush()) {
      throw Error(Error::Kind::environment, "cannot write " + file + "; is the disk full?");
    }
  }
  std::filesystem::rename(temporary, file);
  return static_cast<int64_t>(8 + text.size()) + offset;
}

}  // namespace bnlab
