#include "harness/vectors/vectors.hpp"

#include <ATen/Parallel.h>

#include <filesystem>

#include "harness/store/run_folder.hpp"
#include "harness/support/mapped.hpp"
#include "harness/training/safetensors.hpp"
#include "harness/vectors/cases.hpp"
#include "harness/verify/cases.hpp"

namespace bnlab {
namespace {

class Files {
 public:
  void add(const VectorCase& c) {
    const LayerCase& layer = c.layer_case;
    const VectorAnswer answer = expected_of(c);
    put(c.name + "/weight", layer.weight);
    put(c.name + "/bias", layer.bias);
    put(c.name + "/running_mean", layer.running_mean);
    put(c.name + "/running_var", layer.running_var);
    Json passes = Json::array();
    for (size_t p = 0; p < layer.steps.size(); ++p) {
      const std::string path = c.name + "/" + std::to_string(p) + "/";
      put_ranks(path, "input", layer.steps[p].inputs);
      put_ranks(path, "grad_output", layer.steps[p].gradients);
      const VectorAnswer::Pass& expected = answer.passes[p];
      put_ranks(path, "output", expected.outputs);
      put_ranks(path, "grad_input", expected.input_gradients);
      put(path + "grad_weight", expected.weight_gradient);
      put(path + "grad_bias", expected.bias_gradient);
      put(path + "running_mean", expected.running_mean);
      put(path + "running_var", expected.running_var);
      passes.push_back({{"mode", layer.steps[p].mode == Mode::train ? "train" : "eval"},
                        {"backward", !layer.steps[p].gradients.empty()},
                        {"allowed", expected.allowed}});
    }
    cases_.push_back(
        {{"name", c.name},
         {"catches", c.catches},
         {"dtype", dtype_name(layer.dtype)},
         {"memory_format",
          layer.memory_format == at::MemoryFormat::Contiguous ? "contiguous" : "channels_last"},
         {"rows", mapped(layer.steps.front().inputs, [](const at::Tensor& x) { return x.size(0); })},
         {"ranks_per_group", c.ranks_per_group},
         {"eps", layer.strategy.at("eps")},
         {"momentum", layer.strategy.at("momentum")},
         {"affine", layer.strategy.at("affine")},
         {"backward", c.backward_after_all ? "after_all" : "after_each"},
         {"may_refuse", c.may_refuse},
         {"passes", std::move(passes)}});
  }

  WrittenVectors write(const std::filesystem::path& folder) const {
    std::filesystem::create_directories(folder);
    const Json index{{"format", "batch-norm vectors"},
                     {"version", kVectorsVersion},
                     {"tensors", kVectorTensorsFile},
                     {"cases", cases_}};
    const int64_t bytes = write_safetensors((folder / kVectorTensorsFile).string(), tensors_);
    write_json(folder / kVectorsFile, index);
    return {static_cast<int64_t>(cases_.size()),
            bytes + static_cast<int64_t>(std::filesystem::file_size(folder / kVectorsFile))};
  }

 private:
  void put(const std::string& name, const at::Tensor& t) {
    if (t.defined()) tensors_.push_back({name, t.detach().to(at::kDouble).contiguous()});
  }

  void put_ranks(const std::string& path, const char* what, const std::vector<at::Tensor>& ranks) {
    for (size_t r = 0; r < ranks.size(); ++r) put(path + std::to_string(r) + "/" + what, ranks[r]);
  }

  Json::array_t cases_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace

WrittenVectors write_vectors(const std::string& folder) {
  at::set_num_threads(1);  // the tensors are far too small for more
  Files files;
  for (const VectorCase& c : vector_cases()) files.add(c);
  return files.write(folder);
}

}  // namespace bnlab
