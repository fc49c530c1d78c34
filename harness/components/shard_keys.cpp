#include "harness/components/shard_keys.hpp"

#include <map>

namespace bnlab {
namespace {

using Keys = std::vector<std::string>;

// The table stands here and not beside the tasks, whose sources their records have a fingerprint of: no key is a reason to
// train anything again.
const std::map<std::string, Keys>& table() {
  static const std::map<std::string, Keys> keys = {{"ade20k", {"brightness", "class"}},
                                                   {"camvid", {"drive", "brightness", "class"}},
                                                   {"cifar10", {"class", "brightness"}},
                                                   {"cifar100", {"class", "brightness"}},
                                                   {"cityscapes", {"city", "brightness", "class"}},
                                                   {"folder", {"brightness", "class"}},
                                                   {"frames", {"class"}},
                                                   {"image_folder", {"class"}},
                                                   {"motion", {"class", "scene"}},
                                                   {"shapes", {"class", "brightness"}},
                                                   {"voc", {"brightness", "class"}}};
  return keys;
}

// The images of a folder have groups where its option says how to tell them.
bool has_groups(const Json& task) {
  return task.at("name") == "folder" && task.value("groups", "none") != "none";
}

}  // namespace

std::optional<Keys> shard_keys(const Json& task) {
  const auto found = table().find(task.at("name").get<std::string>());
  if (found == table().end()) {
    return std::nullopt;
  }
  Keys keys = found->second;
  if (has_groups(task)) {
    keys.insert(keys.begin(), "group");
  }
  return keys;
}

}  // namespace bnlab
