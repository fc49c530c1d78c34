// What people call keys and components elsewhere, so that a message can answer with the name that bnlab has:
// an exact answer before a near one, and never the name of another network. The names stand in
// other_names.json, by family; a # in one stands for each of its row's `numbers`.
#pragma once

#include <string>
#include <vector>

#include "harness/support/json.hpp"

namespace bnlab {

struct OtherName {
  std::string
      theirs;  // case, `_`, `-` and the dimensions at the end ("2d") make no difference; `+` is "plus"
  // A component's name, or {"name": ..., its options}; a key with those around it ("optimizer.lr"); "" where
  // bnlab has nothing of the kind.
  std::string ours;
  std::string remark = {};
};

inline constexpr const char* kKeys = "key";  // the family of keys

// The table of a family ("model", "optimizer", ..., kKeys); strategies are told where they are registered
// (OtherNames in registry.hpp).
const std::vector<OtherName>& other_names(const std::string& family);

// "syncbatchnorm" of "torch.nn.SyncBatchNorm", "batchnorm" of "BatchNorm2d", "deeplabv3plus" of "DeepLabV3+".
std::string plain_name(const std::string& name);

// "; bnlab calls it NAME: REMARK", "; REMARK" where there is no name, or "" for a name that is not in the
// table.
std::string answer_from_table(const std::string& family, const std::string& name);

// What segmentation_models calls {"name": "Unet", "encoder_name": "resnet34", "encoder_weights": "imagenet"}:
// the whole model that bnlab has for these words, and init_from; "" of a model without an encoder.
std::string answer_to_encoder(const Json& model);

// The same for an unknown key of the object at `path` ("optimizer", "matrix.strategy[1]", "" for the spec).
// Within a component it answers with this component's keys alone.
std::string answer_to_other_key(const std::string& path, const std::string& key);

// The key that is called so elsewhere, with those around it ("optimizer.lr"); "" for one that is not known.
std::string key_elsewhere(const std::string& name);

// The end of a message about an unknown component: `; did you mean "unet"?` where the names differ by a slip
// of the finger, in letters alone (vgg19 is not vgg16), else `; known: ...`.
std::string component_suggestion(const std::string& name, const std::vector<std::string>& known);

}  // namespace bnlab
