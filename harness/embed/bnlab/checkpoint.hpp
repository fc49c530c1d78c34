// Checkpoints that PyTorch and LibTorch programs share: the tensors of a module by their names.
#pragma once

#include <torch/nn/module.h>

#include <string>

#include <bnlab/export.hpp>

namespace bnlab {

// Reads what Python wrote with torch.save(model.state_dict(), file) into the module's parameters and buffers
// of these names: on a CPU or a GPU, also of old versions, in a dictionary under "state_dict",
// "model_state_dict", "model" or "weights", and with something before all names ("module."). Every tensor of
// the module has to be there, in its shape, but num_batches_tracked, which then is 0; others in the file are
// passed over. Throws std::runtime_error that names all that are missing or do not fit, before it changes
// anything.
BNLAB_API void load_state_dict(torch::nn::Module& module, const std::string& file);

// Writes what Python reads with model.load_state_dict(torch.load(file)). The file appears when it is
// complete.
BNLAB_API void save_state_dict(const torch::nn::Module& module, const std::string& file);

}  // namespace bnlab
