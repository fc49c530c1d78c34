// Keys of a spec set from outside, as the command line does: steps=10, task.size=[32,32], strategy=sync,
// matrix.seed=[0,1].
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/document.hpp"

namespace bnlab {

// Sets each KEY=VALUE in turn; VALUE is JSON, or else a text. An axis of the matrix that moves KEY alone
// gives way to it. Where an axis would set KEY again, or moves it together with others, that is a mistake:
// the override would be without effect.
void override_keys(Document& document, const std::vector<std::string>& overrides, Mistakes& mistakes);

// Sets one key of the document likewise. `where` says who does, for messages.
void override_key(Document& document, const std::string& key, const Json& value, const std::string& where,
                  Mistakes& mistakes);

}  // namespace bnlab
