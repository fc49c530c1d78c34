// Tensors as JSON: {"shape": [2, 1], "data": [0.5, "NaN"]}, row-major whatever their layout in memory, and
// channel vectors as plain arrays. What JSON has no number for is "NaN", "Infinity" or "-Infinity".
#pragma once

#include <torch/types.h>

#include <string>

#include "harness/support/json.hpp"

namespace bnlab {

// Each throws Error (spec) that begins with the path of the value at fault. A number too large for `dtype` is
// one.
at::Tensor read_tensor(const Json& given, const std::string& path, at::ScalarType dtype);
at::Tensor read_vector(const Json& given, const std::string& path, at::ScalarType dtype, int64_t length);

// Every number as the double that it is, so that it reads back exactly.
Json tensor_json(const at::Tensor& tensor);
Json vector_json(const at::Tensor& tensor);

// "[3, 1]"
std::string shape_text(at::IntArrayRef shape);

// Throws Error (spec) with the message "path: message".
[[noreturn]] void refuse_value(const std::string& path, const std::string& message);

// Throws unless `given` is an object with no keys but the known.
void check_keys(const Json& given, const std::string& path, const std::vector<std::string>& known);

// The value of a key that must be there.
const Json& needed(const Json& given, const std::string& path, const std::string& key,
                   const std::string& expected);

}  // namespace bnlab
