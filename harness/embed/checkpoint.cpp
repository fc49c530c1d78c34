#include "harness/embed/bnlab/checkpoint.hpp"

#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/types.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "harness/communicator/reason.hpp"
#include "harness/error.hpp"
#include "harness/layer/tensor_json.hpp"

namespace bnlab {
namespace {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

NamedTensors state_of(const torch::nn::Module& module) {
  NamedTensors all;
  for (const auto& parameter : module.named_parameters())
    all.emplace_back(parameter.key(), parameter.value());
  for (const auto& buffer : module.named_buffers()) all.emplace_back(buffer.key(), buffer.value());
  return all;
}

// As torch.save writes a dictionary. torch::jit::pickle_save adds types to it that torch.load refuses.
void write_dict(const c10::impl::GenericDict& dict, const std::string& file) {
  std::string pickled;
  torch::jit::Pickler pickler([&](const char* bytes, size_t count) { pickled.append(bytes, count); }, nullptr,
                              nullptr, nullptr, nullptr, /*tag_aggregates=*/false);
  pickler.protocol();
  pickler.pushIValue(dict);
  pickler.stop();
  caffe2::serialize::PyTorchStreamWriter archive(file);
  size_t index = 0;
  for (const at::Tensor& tensor : pickler.tensorData()) {
    const torch::jit::WriteableTensorData data = torch::jit::getWriteableTensorData(tensor);
    archive.writeRecord("data/" + std::to_string(index++), data.data(), data.sizeInBytes());
  }
  archive.writeRecord("data.pkl", pickled.data(), pickled.size());
  archive.writeEndOfFile();
}

c10::impl::GenericDict read_dict(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in.is_open() || in.bad()) throw Error(Error::Kind::data, file + ": cannot be read");
  try {
    return torch::jit::pickle_load(bytes).toGenericDict();
  } catch (const std::exception&) {
    throw Error(Error::Kind::data,
                file + ": expected what torch.save(dict(model.state_dict()), file) writes");
  }
}

// Puts the bytes of a file on the disk, lest a power cut leaves an empty one under its new name.
void sync(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int problem = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!synced) throw std::system_error(problem, std::generic_category());
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
  if (!wrong.empty()) throw Error(Error::Kind::data, file + " does not fit the module: " + wrong);
  for (auto& [mine, theirs] : copies) mine.copy_(theirs);
}

void save_state_dict(const torch::nn::Module& module, const std::string& file) {
  c10::impl::GenericDict state(c10::StringType::get(), c10::TensorType::get());
  for (const auto& [name, tensor] : state_of(module)) state.insert(name, tensor.detach().cpu().clone());
  const std::string part = file + ".part";
  try {
    write_dict(state, part);
    sync(part);
    std::filesystem::rename(part, file);
  } catch (const std::exception& error) {
    std::error_code ignored;
    std::filesystem::remove(part, ignored);
    throw Error(Error::Kind::data, file + ": cannot be written: " + reason_of(error));
  }
}

}  // namespace bnlab
