// The options that say what the ids of label files mean: how many classes there are or what they are called,
// which ids are void, and, where ids are not classes, a mapping.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/components/options.hpp"
#include "harness/json.hpp"
#include "harness/tasks/images/photograph.hpp"

namespace bnlab {

// A number of classes, or their names.
struct Classes {
  int64_t count = 0;
  std::vector<std::string> names;
};
void declare(Parameter& parameter, const Classes& classes);
void read(const Json& value, Classes& classes);

struct LabelOptions {
  Classes classes;
  std::vector<int64_t> void_ids = {255};
  Json mapping;  // {"7": 0, "8": "road", "other": "void"}

  void describe(OptionVisitor& option);
  void check(Problems& problems) const;

  LabelMap map() const;
  std::vector<std::string> names() const;  // "0", "1", ... where they have none
};

}  // namespace bnlab
