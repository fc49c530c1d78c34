// Tensors in what Python's torch.save wrote, which are read without executing anything: archives (PyTorch 1.6
// and later) and the older stream of pickles. Whatever else a file holds, such as an optimizer's state, is
// passed over.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace bnlab {

struct PickledTensor {
  std::string name;
  std::vector<int64_t> sizes;
  std::function<at::Tensor()> read;  // on the CPU, wherever it was saved from; while the file stays as it is
};

// The tensors of the file's dictionary, or of the one that it has under "state_dict", "model_state_dict",
// "model" or "weights". Throws Error (data), which names the file and what makes it readable.
std::vector<PickledTensor> pickled_tensors(const std::string& file);

}  // namespace bnlab
