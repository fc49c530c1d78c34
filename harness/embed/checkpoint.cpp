#include "harness/embed/bnlab/checkpoint.hpp"

#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "harness/error.hpp"
#include "harness/layer/tensor_json.hpp"

namespace bnlab {
namespace {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

NamedTensors state_of(const torch::nn::Module& module) {
  NamedTensors all;
  for (const auto& parameter : module.named_parameters()) {
    all.emplace_back(parameter.key(), parameter.value());
  }
  for (const auto& buffer : module.named_buffers()) {
    all.emplace_back(buffer.key(), buffer.value());
  }
  return all;
}

c10::impl::GenericDict read_dict(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) {
    throw Error(Error::Kind::data, file + ": cannot be read");
  }
  try {
    return torch::jit::pickle_load(bytes).toGenericDict();
  } catch (const std::exception&) {
    throw Error(Error::Kind::data,
                file + ": expected what torch.save(dict(model.state_dict()), file) writes");
  }
}

}  // namespace

void load_state_dict(torch::nn::Module& module, const std::string& file) {
  const at::NoGradGuard no_grad;
  const c10::impl::GenericDict given = read_dict(file);
  std::string wrong;
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [name, mine] : state_of(module)) {
    const auto found = given.find(name);
    const bool there = found != given.end() && found->value().isTensor();
    if (!there || found->value().toTensor().sizes() != mine.sizes()) {
      wrong +=
          (wrong.empty() ? "" : ", ") + name + " " + shape_text(mine.sizes()) +
          (there ? " (there it is " + shape_text(found->value().toTensor().sizes()) + ")" : " (missing)");
      continue;
    }
    copies.emplace_back(mine, found->value().toTensor());
  }
  if (!wrong.empty()) {
    throw Error(Error::Kind::data, file + " does not fit the module: " + wrong);
  }
  for (auto& [mine, theirs] : copies) {
    mine.copy_(theirs);
  }
}

void save_state_dict(const torch::nn::Module& module, const std::string& file) {
  c10::impl::GenericDict state(c10::StringType::get(), c10::TensorType::get());
  for (const auto& [name, tensor] : state_of(module)) {
    state.insert(name, tensor.detach().cpu());
  }
  const std::vector<char> bytes = torch::jit::pickle_save(state);
  const std::string part = file + ".part";
  std::ofstream out(part, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) {
    throw Error(Error::Kind::data, part + ": cannot be written");
  }
  std::filesystem::rename(part, file);
}

}  // namespace bnlab
