#include "harness/report/facts.hpp"

namespace bnlab {
namespace {

void add_facts(const Json& value, const std::string& key, Facts& facts) {
  if (!value.is_object()) {
    facts[key].insert(value.is_string() ? value.get<std::string>() : value.dump());
    return;
  }
  for (const auto& [name, entry] : value.items()) {
    add_facts(entry, key.empty() ? name : key + "." + name, facts);
  }
}

}  // namespace

Facts facts_of(const std::vector<const Record*>& records) {
  Facts facts;
  for (const Record* record : records) {
    add_facts(record->at("environment"), "", facts);
    add_facts(record->at("code"), "code", facts);
    if (record->at("inputs").is_object()) add_facts(record->at("inputs"), "inputs", facts);
    for (const char* key : {"threads_per_rank", "backend", "jobs"}) {
      add_facts(record->at("placement." + std::string(key)), key, facts);
    }
  }
  return facts;
}

}  // namespace bnlab
