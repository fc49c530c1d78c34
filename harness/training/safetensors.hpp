// Weights in the safetensors format: 8 bytes little-endian length of a JSON header {"name": {"dtype",
// "shape", "data_offsets"}}, then the raw row-major data. Readable from Python without executing anything.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace bnlab {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// Writes all tensors to `file`: whole and on the disk, or not at all. Returns the size in bytes. Throws Error
// (environment) if the disk refuses.
int64_t write_safetensors(const std::string& file, const std::vector<NamedTensor>& tensors);

// What such a file consists of. `metadata`: texts that the header holds beside the tensors.
std::string safetensors_bytes(const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

// All tensors of a file, on the CPU. Throws Error (data) that names the file, and the tensor where one is at
// fault, unless the header is well-formed and its tensors fill the file without holes or overlaps.
std::vector<NamedTensor> read_safetensors(const std::string& file);

struct SafeTensorsHeader {
  // Where a tensor lies behind the header.
  struct Entry {
    std::string name;
    at::ScalarType dtype;
    std::vector<int64_t> shape;
    uint64_t begin, end;
  };
  std::vector<Entry> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// The header of a file from its text. `data_bytes`: of the file behind the header; `file` names it in
// messages. Throws as read_safetensors does.
SafeTensorsHeader parse_safetensors_header(const std::string& text, uint64_t data_bytes,
                                           const std::string& file);

// A file that is read tensor by tensor.
class SafeTensorsFile {
 public:
  // Reads the header. Throws as read_safetensors does.
  explicit SafeTensorsFile(const std::string& file);

  const SafeTensorsHeader& header() const { return header_; }
  const std::string& header_text() const { return header_text_; }
  uint64_t data_bytes() const { return data_bytes_; }
  at::Tensor read(const SafeTensorsHeader::Entry& entry);  // on the CPU

 private:
  std::string file_;
  std::ifstream in_;
  std::string header_text_;
  uint64_t data_begin_ = 0, data_bytes_ = 0;
  SafeTensorsHeader header_;
};

}  // namespace bnlab
