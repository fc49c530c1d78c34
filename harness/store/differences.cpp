#include "harness/store/differences.hpp"

#include <algorithm>
#include <set>

namespace bnlab {
namespace {

constexpr int kMostNamed = 10;

}  // namespace

void TruncatedList::add(const std::string& item) {
  if (++count_ <= kMostNamed) text_ += (count_ == 1 ? "" : separator_) + item;
}

std::string TruncatedList::text() const {
  return text_ + (count_ > kMostNamed ? separator_ + std::to_string(count_ - kMostNamed) + " more" : "");
}

std::string differences(const Json& a, const Json& b, const std::string& in_a, const std::string& in_b) {
  const Json left = a.flatten(), right = b.flatten();
  std::set<std::string> pointers;
  for (const Json* side : {&left, &right})
    for (const auto& entry : side->items()) pointers.insert(entry.key());
  pointers.erase("");  // an object without keys has it
  const auto text = [](const Json& side, const std::string& pointer) {
    return side.contains(pointer) ? side.at(pointer).dump() : "absent";
  };
  TruncatedList found(", ");
  for (const std::string& pointer : pointers) {
    const std::string of_a = text(left, pointer), of_b = text(right, pointer);
    if (of_a == of_b) continue;
    std::string key = pointer.substr(1);
    std::ranges::replace(key, '/', '.');
    found.add(key + " is " + of_a + in_a + " and " + of_b + in_b);
  }
  return found.text();
}

}  // namespace bnlab
