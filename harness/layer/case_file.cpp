// A layer case, read from JSON.
#include <map>

#include "harness/components/options.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/layer/tensor_json.hpp"

namespace bnlab {
namespace {

constexpr double kLargestSeed = 9007199254740992.0;  // 2^53: every JSON reader holds it exactly
constexpr double kMostPasses = 1e6;                  // in a step
constexpr double kLargestWindow = 65536;             // stride and padding of a convolution

struct Header {
  Json strategy;
  std::string dtype = "float64";
  std::string memory_format = "contiguous";
  std::string activation = "none";
  uint64_t seed = 0;
  int64_t accumulate = 1;
  std::string statistics_per = "micro_batch";

  void describe(OptionVisitor& option) {
    option.component("strategy", strategy, "strategy", "").needed();
    option("dtype", dtype, "").one_of({"float64", "float32", "bfloat16", "float16"});
    option("memory_format", memory_format, "").one_of({"contiguous", "channels_last"});
    option("activation", activation, "").one_of({"none", "relu"});
    option("seed", seed, "").at_least(0).at_most(kLargestSeed);
    option("accumulate", accumulate, "").at_least(1).at_most(kMostPasses);
    option("statistics_per", statistics_per, "").one_of({"micro_batch", "step"});
  }
};

struct Window {
  int64_t stride = 1;
  int64_t padding = 0;

  void describe(OptionVisitor& option) {
    option("stride", stride, "").at_least(1).at_most(kLargestWindow);
    option("padding", padding, "").at_least(0).at_most(kLargestWindow);
  }
};

struct StepHeader {
  std::string mode = "train";

  void describe(OptionVisitor& option) { option("mode", mode, "").one_of({"train", "eval"}); }
};

// Those keys of `given` that `Options` describes; other keys are checked elsewhere.
template <class Options>
Options read_settings(const Json& given, const std::string& path) {
  const std::vector<Parameter> all = declared<Options>();
  Json own = Json::object();
  for (const Parameter& parameter : all)
    if (given.contains(parameter.name)) own[parameter.name] = given.at(parameter.name);
  Problems problems;
  const Json settings = resolve(all, own, path, problems);
  if (!problems.empty()) refuse_value(problems.found().front().first, problems.found().front().second);
  return read_options<Options>(settings);
}

class Reader {
 public:
  explicit Reader(const Json& document) : document_(document) {}

  LayerCase read() {
    check_keys(document_, "",
               {"strategy", "dtype", "memory_format", "activation", "seed", "accumulate", "statistics_per",
                "weight", "bias", "threshold", "alpha", "running_mean", "running_var", "conv", "steps"});
    read_header();
    read_conv();
    read_steps();
    const int64_t channels = case_.conv ? case_.conv->v.size(0) : channels_;
    case_.weight = channel_vector(document_, "", "weight", channels);
    case_.bias = channel_vector(document_, "", "bias", channels);
    for (const auto& [name, size] : {std::pair{"threshold", channels}, std::pair{"alpha", int64_t{1}}})
      if (const at::Tensor given = channel_vector(document_, "", name, size); given.defined())
        case_.parameters[name] = given;
    case_.running_mean = channel_vector(document_, "", "running_mean", channels);
    case_.running_var = channel_vector(document_, "", "running_var", channels);
    return case_;
  }

 private:
  void read_header() {
    const auto header = read_settings<Header>(document_, "");
    static const std::map<std::string, at::ScalarType> dtypes{{"float64", at::kDouble},
                                                              {"float32", at::kFloat},
                                                              {"bfloat16", at::kBFloat16},
                                                              {"float16", at::kHalf}};
    case_.strategy = header.strategy;
    case_.dtype = dtypes.at(header.dtype);
    case_.memory_format =
        header.memory_format == "contiguous" ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
    case_.activation = header.activation == "relu" ? Activation::relu : Activation::none;
    case_.seed = header.seed;
    case_.accumulate = header.accumulate;
    case_.statistics_per_step = header.statistics_per == "step";
  }

  void read_conv() {
    if (!document_.contains("conv")) return;
    for (const char* key : {"weight", "bias"})
      if (document_.contains(key))
        refuse_value(key, "expected none beside conv, which has v, gain and bias of its own");
    const Json& given = document_.at("conv");
    check_keys(given, "conv", {"v", "gain", "bias", "stride", "padding"});
    const auto window = read_settings<Window>(given, "conv");
    LayerConv conv;
    conv.v = read_tensor(needed(given, "conv", "v", "a tensor of shape [out, in, k, k]"), "conv.v", held());
    if (conv.v.dim() != 4 || conv.v.size(2) != conv.v.size(3) || conv.v.numel() == 0)
      refuse_value("conv.v.shape", "expected [out, in, k, k], got " + shape_text(conv.v.sizes()));
    conv.gain = channel_vector(given, "conv", "gain", conv.v.size(0));
    conv.bias = channel_vector(given, "conv", "bias", conv.v.size(0));
    conv.stride = window.stride;
    conv.padding = window.padding;
    channels_ = conv.v.size(1);
    case_.conv = conv;
  }

  void read_steps() {
    const Json& steps = needed(document_, "", "steps", "an array of steps");
    if (!steps.is_array() || steps.empty())
      refuse_value("steps", "expected an array of at least one step, got " + shown(steps));
    for (size_t i = 0; i < steps.size(); ++i)
      case_.steps.push_back(read_step(steps[i], "steps[" + std::to_string(i) + "]"));
  }

  LayerStep read_step(const Json& given, const std::string& path) {
    check_keys(given, path, {"mode", "towers"});
    const std::string mode = read_settings<StepHeader>(given, path).mode;
    const Json& towers = needed(given, path, "towers", "an array of towers");
    const std::string towers_path = key_path(path, "towers");
    if (!towers.is_array() || towers.empty())
      refuse_value(towers_path, "expected an array of at least one tower, got " + shown(towers));
    if (!case_.steps.empty() && towers.size() != case_.towers()) {
      refuse_value(towers_path, "expected " + std::to_string(case_.towers()) +
                                    " towers as in steps[0], got " + std::to_string(towers.size()));
    }
    LayerStep step;
    step.mode = mode == "train" ? Mode::train : Mode::evaluate_saved;
    bool backward = false;
    for (size_t t = 0; t < towers.size(); ++t) {
      const std::string tower_path = towers_path + "[" + std::to_string(t) + "]";
      check_keys(towers[t], tower_path, {"input", "grad_output"});
      step.inputs.push_back(read_input(towers[t], tower_path));
      step.gradients.push_back(read_gradient(towers[t], tower_path, step.inputs.back()));
      backward = backward || step.gradients.back().defined();
    }
    if (!backward) step.gradients.clear();
    return step;
  }

  at::Tensor read_input(const Json& tower, const std::string& path) {
    const std::string input_path = key_path(path, "input"), shape_path = key_path(input_path, "shape");
    const at::Tensor x = read_tensor(needed(tower, path, "input", "a tensor"), input_path, case_.dtype);
    const std::string got = ", got " + shape_text(x.sizes());
    if (x.dim() < 2 || x.dim() > 5)
      refuse_value(shape_path, "expected [n, C], [n, C, L], [n, C, H, W] or [n, C, D, H, W]" + got);
    if (case_.conv && x.dim() != 4)
      refuse_value(shape_path, "expected [n, C, H, W] before a convolution" + got);
    for (int64_t d = 1; d < x.dim(); ++d)
      if (x.size(d) == 0) refuse_value(shape_path, "expected nothing but n to be 0" + got);
    if (case_.memory_format != at::MemoryFormat::Contiguous && x.dim() < 4) {
      refuse_value("memory_format", "channels_last needs inputs of 4 or 5 dimensions, " + input_path +
                                        " has " + std::to_string(x.dim()));
    }
    channels_ = channels_ == 0 ? x.size(1) : channels_;
    if (x.size(1) != channels_) {
      refuse_value(shape_path, "expected " + std::to_string(channels_) + " channels as " +
                                   (case_.conv ? "conv.v" : "in the first tower") + got);
    }
    return x;
  }

  at::Tensor read_gradient(const Json& tower, const std::string& path, const at::Tensor& input) const {
    const std::vector<int64_t> shape = output_shape(input, key_path(path, "input"));
    if (!tower.contains("grad_output")) return {};
    const std::string gradient_path = key_path(path, "grad_output");
    const at::Tensor dy = read_tensor(tower.at("grad_output"), gradient_path, case_.dtype);
    if (dy.sizes() != at::IntArrayRef(shape)) {
      refuse_value(
          key_path(gradient_path, "shape"),
          "expected the shape of the output, " + shape_text(shape) + ", got " + shape_text(dy.sizes()));
    }
    return dy;
  }

  std::vector<int64_t> output_shape(const at::Tensor& input, const std::string& path) const {
    std::vector<int64_t> shape = input.sizes().vec();
    if (!case_.conv) return shape;
    const LayerConv& conv = *case_.conv;
    shape[1] = conv.v.size(0);
    for (const size_t d : {2, 3}) {
      const int64_t room = shape[d] + 2 * conv.padding - conv.v.size(2);
      if (room < 0) {
        refuse_value(key_path(path, "shape"),
                     "expected at least the size of the kernel, " + std::to_string(conv.v.size(2)) +
                         ", less twice the padding, got " + shape_text(input.sizes()));
      }
      shape[d] = room / conv.stride + 1;
    }
    return shape;
  }

  at::Tensor channel_vector(const Json& given, const std::string& path, const std::string& key,
                            int64_t channels) const {
    return given.contains(key) ? read_vector(given.at(key), key_path(path, key), held(), channels)
                               : at::Tensor();
  }

  at::ScalarType held() const { return statistics_type(case_.dtype); }

  const Json& document_;
  LayerCase case_;
  int64_t channels_ = 0;  // 0: not known yet
};

}  // namespace

LayerCase read_layer_case(const Json& document) {
  return Reader(document).read();
}

}  // namespace bnlab
