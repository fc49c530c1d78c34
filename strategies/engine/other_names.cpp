// What PyTorch, TensorFlow, mmcv and papers call the strategies, for messages about unknown names.
#include "harness/components/registry.hpp"

namespace bnlab {
namespace {

const OtherNames names{"strategy",
                       {{"SyncBN", "sync"},
                        {"SyncBatchNorm", "sync"},
                        {"convert_sync_batchnorm", "sync"},
                        {"SynchronizedBatchNorm", "sync"},
                        {"CrossGPUBN", "sync"},
                        {"InPlaceABNSync", "sync"},
                        {"BN", "per_tower"},
                        {"BatchNorm", "per_tower"},
                        {"BatchNormalization", "per_tower"},
                        {"LocalBN", "per_tower"},
                        {"GN", "group_norm"},
                        {"GroupNormalization", "group_norm"},
                        {"LN", "layer_norm"},
                        {"LayerNormalization", "layer_norm"},
                        {"IN", "instance_norm"},
                        {"InstanceNormalization", "instance_norm"},
                        {"BRN", "batch_renorm"},
                        {"BatchReNormalization", "batch_renorm"},
                        {"MABN2d", "mabn"},
                        {"MovingAverageBatchNorm", "mabn"},
                        {"WN", "weight_norm"},
                        {"WeightNormalization", "weight_norm"},
                        {"FRN", "filter_response_norm"},
                        {"DyT", "dynamic_tanh"},
                        {"WS", "weight_standardisation"},
                        {"WeightStandardization", "weight_standardisation"},
                        {"FrozenBN", "frozen"},
                        {"FrozenBatchNorm", "frozen"},
                        {"PreciseBN", "precise"},
                        {"GhostBN", "ghost"},
                        {"GhostBatchNorm", "ghost"},
                        {"Identity", "none"}}};

}  // namespace
}  // namespace bnlab
