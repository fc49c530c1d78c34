#include "harness/layer/layer_program.hpp"

#include <ATen/Parallel.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iostream>
#include <optional>
#include <string_view>
#include <vector>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/experiment/strict_json.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/layer/tensor_json.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

constexpr size_t kLongest = size_t{1} << 30;  // bytes of a case

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// All that comes, unless it is endless or no text: a device such as /dev/zero must not fill the memory.
std::string read_all(std::istream& in, const std::string& file) {
  std::string text;
  std::vector<char> chunk(size_t{1} << 20);
  while (in.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || in.gcount() > 0) {
    const std::string_view part(chunk.data(), static_cast<size_t>(in.gcount()));
    if (part.find('\0') != part.npos || text.size() + part.size() > kLongest) {
      throw Error(Error::Kind::usage, file + ": expected JSON of at most 1 GiB, got " +
                                          (text.size() + part.size() > kLongest ? "more" : "a NUL byte"));
    }
    text += part;
  }
  return text;
}

std::string read_text(const std::string& file) {
  if (file == "-") return read_all(std::cin, "standard input");
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  in.peek();  // a folder opens, but cannot be read
  if (!in.is_open() || in.bad())
    throw Error(Error::Kind::usage, file + ": cannot be read: " + std::strerror(errno));
  return read_all(in, file);
}

Json read_document(const std::string& file) {
  Mistakes mistakes(file);
  std::optional<Json> document = parse_strict_json(read_text(file), file, mistakes);
  mistakes.throw_if_any();
  return std::move(*document);
}

void put(Json& step, const char* key, const at::Tensor& values) {
  if (values.defined()) step[key] = vector_json(values);
}

Json step_json(const LayerStepAnswer& answer) {
  Json step{{"towers", Json::array()}};
  for (size_t t = 0; t < answer.outputs.size(); ++t) {
    Json tower{{"output", tensor_json(answer.outputs[t])}};
    if (!answer.input_gradients.empty()) tower["grad_input"] = tensor_json(answer.input_gradients[t]);
    step["towers"].push_back(std::move(tower));
  }
  if (answer.v_gradient.defined()) step["grad_v"] = tensor_json(answer.v_gradient);
  put(step, "grad_gain", answer.gain_gradient);
  put(step, "grad_weight", answer.weight_gradient);
  put(step, "grad_bias", answer.bias_gradient);
  for (const auto& [name, gradient] : answer.parameter_gradients)
    put(step, ("grad_" + name).c_str(), gradient);
  put(step, "gain", answer.gain);
  put(step, "bias", answer.bias);
  put(step, "running_mean", answer.running_mean);
  put(step, "running_var", answer.running_var);
  if (!answer.permutation.empty()) step["permutation"] = answer.permutation;
  step["collectives"] = mapped(answer.collectives, [](const Collective& collective) {
    return Json{{"op", collective.op},
                {"elements", collective.elements},
                {"purpose", kPurposeNames[static_cast<size_t>(collective.purpose)]}};
  });
  return step;
}

// Messages begin with the file.
Json answer(const std::string& file, const LayerRequest& request) {
  const Json document = read_document(file);
  std::string key;
  try {
    const LayerCase layer_case = read_layer_case(document);
    const auto device = request.device == "cuda" ? at::kCUDA : at::kCPU;
    return {{"steps", mapped(apply_layer(layer_case, request.ranks, device, &key).steps, step_json)}};
  } catch (const Error& error) {
    if (error.kind() == Error::Kind::environment) throw;
    throw Error(error.kind(), file + ": " + key + (key.empty() ? "" : ": ") + error.what());
  } catch (const std::exception& error) {
    throw Error(Error::Kind::refused, file + ": " + key + (key.empty() ? "" : ": ") + error.what());
  }
}

}  // namespace

bool answer_layer_cases(const LayerRequest& request, std::ostream& out, std::ostream& err) {
  if (request.ranks > 1) prepare_thread_ranks();
  at::set_num_threads(1);  // cases are small: more threads cost more than they bring
  bool all_done = true;
  for (const std::string& file : request.files) {
    try {
      out << answer(file, request).dump() << std::endl;
    } catch (const Error& error) {
      if (error.kind() == Error::Kind::environment) throw;
      err << first_line(error.what()) << std::endl;
      all_done = false;
    }
  }
  return all_done;
}

}  // namespace bnlab
