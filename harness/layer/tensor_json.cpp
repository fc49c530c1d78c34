#include "harness/layer/tensor_json.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "harness/components/parameters.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::string entry(const std::string& path, size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

double read_number(const Json& given, const std::string& path, size_t index) {
  if (given.is_number()) return given.get<double>();
  if (given == "NaN") return std::nan("");
  if (given == "Infinity" || given == "-Infinity") return given == "Infinity" ? kInfinity : -kInfinity;
  refuse_value(entry(path, index),
               "expected a number, \"NaN\", \"Infinity\" or \"-Infinity\", got " + shown(given));
}

Json number_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

at::Tensor read_numbers(const Json& given, const std::string& path, at::ScalarType dtype) {
  const at::Tensor exact = at::empty({static_cast<int64_t>(given.size())}, at::kDouble);
  double* values = exact.mutable_data_ptr<double>();
  for (size_t i = 0; i < given.size(); ++i) values[i] = read_number(given[i], path, i);
  const at::Tensor rounded = exact.to(dtype);
  const at::Tensor overflown = rounded.isinf().logical_and(exact.isinf().logical_not()).nonzero();
  if (overflown.size(0) > 0) {
    const auto i = static_cast<size_t>(overflown[0][0].item<int64_t>());
    refuse_value(entry(path, i), "expected a number within the range of " +
                                     std::string(c10::toString(dtype)) + ", got " + shown(given[i]));
  }
  return rounded;
}

std::vector<int64_t> read_shape(const Json& given, const std::string& path) {
  const std::string expected = "expected an array of integers >= 0";
  if (!given.is_array()) refuse_value(path, expected + ", got " + shown(given));
  std::vector<int64_t> shape;
  for (size_t i = 0; i < given.size(); ++i) {
    constexpr int64_t kLargest = int64_t{1} << 31;
    if (!given[i].is_number_integer() || given[i] < 0 || given[i] > kLargest)
      refuse_value(entry(path, i), "expected an integer in [0, 2^31], got " + shown(given[i]));
    shape.push_back(given[i].get<int64_t>());
  }
  return shape;
}

// In floating point, where no product of sizes overflows.
double elements(const std::vector<int64_t>& shape) {
  double product = 1;
  for (const int64_t size : shape) product *= static_cast<double>(size);
  return product;
}

}  // namespace

void refuse_value(const std::string& path, const std::string& message) {
  throw Error(Error::Kind::spec, path + ": " + message);
}

void check_keys(const Json& given, const std::string& path, const std::vector<std::string>& known) {
  if (!given.is_object()) refuse_value(path, "expected an object, got " + shown(given));
  for (const auto& [key, unused] : given.items())
    if (std::ranges::find(known, key) == known.end())
      refuse_value(key_path(path, key), "unknown key" + suggestion(key, known));
}

const Json& needed(const Json& given, const std::string& path, const std::string& key,
                   const std::string& expected) {
  if (!given.contains(key)) refuse_value(key_path(path, key), "missing, expected " + expected);
  return given.at(key);
}

at::Tensor read_tensor(const Json& given, const std::string& path, at::ScalarType dtype) {
  check_keys(given, path, {"shape", "data"});
  const std::string shape_path = key_path(path, "shape"), data_path = key_path(path, "data");
  const std::vector<int64_t> shape =
      read_shape(needed(given, path, "shape", "an array of integers"), shape_path);
  const Json& data = needed(given, path, "data", "an array of numbers");
  if (!data.is_array()) refuse_value(data_path, "expected an array of numbers, got " + shown(data));
  if (elements(shape) != static_cast<double>(data.size())) {
    refuse_value(data_path, "expected as many numbers as shape " + shape_text(shape) + " has, got " +
                                std::to_string(data.size()));
  }
  return read_numbers(data, data_path, dtype).view(shape);
}

at::Tensor read_vector(const Json& given, const std::string& path, at::ScalarType dtype, int64_t length) {
  if (!given.is_array() || given.size() != static_cast<size_t>(length)) {
    const std::string got = given.is_array() ? std::to_string(given.size()) + " entries" : shown(given);
    refuse_value(path,
                 "expected an array of " + std::to_string(length) + " numbers, one per channel, got " + got);
  }
  return read_numbers(given, path, dtype);
}

Json tensor_json(const at::Tensor& tensor) {
  return {{"shape", tensor.sizes().vec()}, {"data", vector_json(tensor.contiguous().view(-1))}};
}

// Built as a plain array: Json's own push_back visits all entries again for every new one.
Json vector_json(const at::Tensor& tensor) {
  const at::Tensor exact = tensor.to(at::kDouble).contiguous();
  const double* first = exact.const_data_ptr<double>();
  Json::array_t values(static_cast<size_t>(exact.numel()));
  std::transform(first, first + exact.numel(), values.begin(), number_json);
  return values;
}

std::string shape_text(at::IntArrayRef shape) {
  return "[" + joined(mapped(shape, [](int64_t size) { return std::to_string(size); })) + "]";
}

}  // namespace bnlab
