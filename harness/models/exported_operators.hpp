// The operators of ATen that the graph of an exported network may call. All of them only compute: the dispatcher
// also knows some that open files or change what others hold.
#pragma once

#include <set>
#include <sstream>
#include <string>

namespace bnlab {

// By name, without the _ of those that change their first argument.
constexpr const char* kProducts =
    "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution linear matmul mm "
    "bmm "
    "addmm baddbmm einsum scaled_dot_product_attention lstm gru";
constexpr const char* kNorms =
    "batch_norm group_norm layer_norm instance_norm rms_norm linalg_vector_norm norm normalize";
constexpr const char* kSizes =
    "max_pool1d max_pool2d max_pool3d max_pool2d_with_indices max_unpool2d avg_pool1d avg_pool2d avg_pool3d "
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool2d upsample_nearest1d "
    "upsample_nearest2d upsample_nearest3d _upsample_nearest_exact2d upsample_linear1d upsample_bilinear2d "
    "_upsample_bilinear2d_aa upsample_bicubic2d upsample_trilinear3d pixel_shuffle pixel_unshuffle "
    "channel_shuffle grid_sampler grid_sampler_2d affine_grid_generator im2col col2im";
constexpr const char* kOfEachValue =
    "relu relu6 silu gelu mish elu celu selu leaky_relu prelu hardswish hardsigmoid hardtanh hardshrink "
    "softplus softshrink softsign threshold sigmoid log_sigmoid tanh glu exp exp2 expm1 log log2 log10 log1p "
    "sqrt rsqrt square reciprocal abs neg sign sin cos tan atan atan2 erf pow add sub rsub mul div "
    "true_divide "
    "floor_divide fmod remainder lerp addcmul addcdiv clamp clamp_min clamp_max minimum maximum where "
    "masked_fill floor ceil round trunc frac eq ne lt le gt ge logical_and logical_or logical_not "
    "logical_xor "
    "bitwise_and bitwise_or bitwise_not __and__ __or__ isnan isinf isfinite nan_to_num cumsum softmax "
    "log_softmax";
constexpr const char* kOfSeveralValues =
    "sum mean prod std var var_mean std_mean amax amin max min any all argmax argmin logsumexp topk sort";
constexpr const char* kShapes =
    "view view_as reshape reshape_as flatten unflatten squeeze unsqueeze permute transpose t movedim "
    "swapaxes "
    "expand expand_as broadcast_to repeat repeat_interleave tile cat concat stack hstack vstack chunk split "
    "split_with_sizes tensor_split unbind select slice narrow index index_select gather take_along_dim roll "
    "flip rot90 diagonal tril triu unfold pad constant_pad_nd reflection_pad1d reflection_pad2d "
    "replication_pad2d meshgrid contiguous clone to _to_copy type_as detach lift_fresh lift_fresh_copy alias "
    "copy sym_size size numel sym_numel embedding one_hot";
constexpr const char* kFromNothing =
    "empty empty_like new_empty zeros zeros_like new_zeros ones ones_like new_ones full full_like new_full "
    "arange linspace scalar_tensor eye fill zero";
constexpr const char* kNoise = "dropout feature_dropout bernoulli";  // which bnlab draws

inline bool may_be_called(const std::string& op) {
  static const std::set<std::string> allowed = [] {
    std::set<std::string> names;
    for (const char* kind :
         {kProducts, kNorms, kSizes, kOfEachValue, kOfSeveralValues, kShapes, kFromNothing, kNoise}) {
      std::istringstream words(kind);
      for (std::string name; words >> name;) names.insert("aten::" + name);
    }
    return names;
  }();
  const std::string name = op.substr(0, op.find('.'));
  if (op.find("out", name.size()) != std::string::npos) return false;  // these write into what they are given
  return allowed.contains(name) || (name.ends_with("_") && allowed.contains(name.substr(0, name.size() - 1)));
}

}  // namespace bnlab
