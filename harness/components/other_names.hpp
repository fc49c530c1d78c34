// What other frameworks call our components, so that a message can answer their names with ours. Whoever
// registers the components says it (no code of harness names a strategy):
//
//   const OtherNames names{"strategy", {{"SyncBatchNorm", "sync"}, {"BN", "per_tower"}}};
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bnlab {

struct OtherNames {
  // `names`: theirs, then ours.
  OtherNames(const std::string& family, const std::vector<std::pair<std::string, std::string>>& names);
};

// `; bnlab calls it "sync"`, or "" for a name that nobody has told. Case, `_`, `-`, a framework's prefix
// ("nn.") and the dimensions at the end ("2d") make no difference; neither need a name be told that differs
// from ours in nothing else.
std::string answer_to_other_name(const std::string& family, const std::string& name);

}  // namespace bnlab
