#include "harness/embed/bnlab/checkpoint.hpp"

#include <caffe2/serialize/inline_container.h>
#include <fcntl.h>
#include <torch/csrc/jit/serialization/pickler.h>
#include <torch/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "harness/communicator/reason.hpp"
#include "harness/embed/pickled.hpp"
#include "harness/layer/tensor_json.hpp"
#include "harness/support/error.hpp"

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

// PyTorch counts batches at every norm since 0.4.1.
bool is_counter(const std::string& name) {
  return name == "num_batches_tracked" || name.ends_with(".num_batches_tracked");
}

// What stands before all names in a file, such as "module.": of what may, that with which most tensors are
// there.
std::string prefix_of(const std::map<std::string, PickledTensor>& given, const NamedTensors& wanted,
                      const std::string& file) {
  const auto found = [&](const std::string& prefix) {
    return std::ranges::count_if(wanted, [&](const auto& mine) {
      return !is_counter(mine.first) && given.contains(prefix + mine.first);
    });
  };
  std::set<std::string> prefixes;
  for (const auto& [mine, unused] : wanted)
    for (const auto& [theirs, unused_too] : given)
      if (!is_counter(mine) && theirs.ends_with("." + mine))
        prefixes.insert(theirs.substr(0, theirs.size() - mine.size()));
  std::string best, other;
  for (const std::string& prefix : prefixes) {
    if (found(prefix) > found(best)) best = prefix;
    if (found(prefix) == found(best) && prefix != best) other = prefix;
  }
  const auto all = std::ranges::count_if(wanted, [](const auto& mine) { return !is_counter(mine.first); });
  if (!best.empty() && found(other) == all) {
    throw Error(Error::Kind::data, file + " has two such networks, " + best + "* and " + other +
                                       "*: save the one that is meant, without what stands before its names");
  }
  return best;
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
  std::map<std::string, PickledTensor> given;
  for (PickledTensor& tensor : pickled_tensors(file)) given.insert_or_assign(tensor.name, std::move(tensor));
  const NamedTensors wanted = state_of(module);
  const std::string prefix = prefix_of(given, wanted, file);
  std::string wrong;
  std::vector<std::pair<at::Tensor, const PickledTensor*>> found;
  for (const auto& [name, mine] : wanted) {
    const auto theirs = given.find(prefix + name);
    const bool there = theirs != given.end();
    if (there ? mine.sizes() != theirs->second.sizes : !is_counter(name)) {
      wrong += (wrong.empty() ? "" : ", ") + name + " " + shape_text(mine.sizes()) +
               (there ? " (there it is " + shape_text(theirs->second.sizes) + ")" : " (missing)");
    }
    found.emplace_back(mine, there ? &theirs->second : nullptr);
  }
  if (!wrong.empty()) throw Error(Error::Kind::data, file + " does not fit the module: " + wrong);
  std::vector<at::Tensor> read;
  for (const auto& [mine, theirs] : found)
    read.push_back(theirs == nullptr ? at::zeros({}, at::kLong) : theirs->read());
  for (size_t i = 0; i < found.size(); ++i) found[i].first.copy_(read[i]);
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
