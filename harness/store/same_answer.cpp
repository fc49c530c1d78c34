#include "harness/store/same_answer.hpp"

#include <algorithm>
#include <set>

namespace bnlab {
namespace {

constexpr int kMostNamed = 10;

}  // namespace

void Named::add(const std::string& item) {
  if (++count_ <= kMostNamed) text_ += (count_ == 1 ? "" : separator_) + item;
}

std::string Named::text() const {
  return text_ + (count_ > kMostNamed ? separator_ + std::to_string(count_ - kMostNamed) + " more" : "");
}

std::string differences(const Json& a, const Json& b) {
  const Json left = a.flatten(), right = b.flatten();
  std::set<std::string> pointers;
  for (const Json* side : {&left, &right}) {
    for (const auto& entry : side->items()) pointers.insert(entry.key());
  }
  const auto text = [](const Json& side, const std::string& pointer) {
    return side.contains(pointer) ? side.at(pointer).dump() : "absent";
  };
  Named found(", ");
  for (const std::string& pointer : pointers) {
    const std::string there = text(left, pointer), here = text(right, pointer);
    if (there == here) continue;
    std::string key = pointer.substr(1);
    std::ranges::replace(key, '/', '.');
    found.add(key + " is " + there + " and " + here);
  }
  return found.text();
}

Json answer_of(const Record& record) {
  Json result = record.at("result");
  if (result.is_object()) {
    for (const char* key : {"throughput", "memory", "resumed_at_steps", "cuda_graph"}) result.erase(key);
  }
  return {{"outcome", name(record.status())}, {"inputs", record.at("inputs")}, {"result", result}};
}

}  // namespace bnlab
