// Weights in the safetensors format: 8 bytes little-endian length of a JSON header {"name": {"dtype",
// "shape", "data_offsets"}}, then the raw row-major data. Readable from Python without executing anything.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bnlab {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

struct SafeTensors {
  std::vector<NamedTensor> tensors;             // in the order of their data
  std::map<std::string, std::string> metadata;  // texts that the header holds beside them
};

// Writes all tensors to `file`: whole and on the disk, or not at all. Returns the size in bytes. Throws Error
// (environment) if the disk refuses.
int64_t write_safetensors(const std::string& file, const std::vector<NamedTensor>& tensors);

// All tensors of a file, on the CPU. Throws Error (data) that names the file, and the tensor where one is at
// fault, unless the header is well-formed and its tensors fill the file without holes or overlaps.
std::vector<NamedTensor> read_safetensors(const std::string& file);

// The same for the bytes of a file that has been read already; `file` names it in messages.
SafeTensors parse_safetensors(std::string bytes, const std::string& file);

// What such a file consists of.
std::string safetensors_bytes(const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {});

}  // namespace bnlab
