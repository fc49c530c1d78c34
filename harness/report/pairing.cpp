#include "harness/report/pairing.hpp"

#include <array>

#include "harness/components/registry.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

void add_facts(const Json& value, const std::string& key, Facts& facts) {
  if (!value.is_object()) {
    facts[key].insert(value.is_string() ? value.get<std::string>() : value.dump());
    return;
  }
  for (const auto& [name, entry] : value.items())
    add_facts(entry, key.empty() ? name : key + "." + name, facts);
}

std::string identity_text(const std::string& key, const Json& value) {
  const Json& named = value_at(value, "name");
  const std::string family = family_at(key), name = named.is_string() ? named.get<std::string>() : "";
  if (find_registered(family, name) != nullptr) return label(value, family);
  if (!name.empty() && value.size() == 1) return name;
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// With the defaults of this program filled in, so that a key that one record lacks is no difference; a spec
// that this program cannot read stays as it is.
Json complete_spec(const Record& record) {
  try {
    return read_resolved(record.at("spec")).resolved;
  } catch (const Error&) {
    return record.at("spec");
  }
}

RunIdentity identity_of(const Record& record) {
  RunIdentity identity;
  const Json spec = complete_spec(record);
  for (const auto& [key, value] : spec.items())
    if (changes_result(key)) identity[key] = identity_text(key, value);
  identity[kPlacementKey] = record.placement();
  return identity;
}

std::set<std::string> all_keys(const ComparedSide& a, const ComparedSide& b) {
  std::set<std::string> keys;
  for (const ComparedSide* side : {&a, &b}) {
    for (const RunIdentity& identity : side->identities)
      for (const auto& [key, value] : identity) keys.insert(key);
  }
  return keys;
}

std::string value_of_key(const RunPair& pair, const std::string& key) {
  const auto entry = pair.common.find(key);
  return entry == pair.common.end() ? "" : entry->second;
}

constexpr std::array<const char*, 3> kNamedFirst = {"strategy", "towers", "batch_per_tower"};

// How many cells those keys tell apart.
size_t cells_told_apart(const std::vector<RunPair>& pairs, const std::set<std::string>& keys) {
  std::set<std::vector<std::string>> cells;
  for (const RunPair& pair : pairs) {
    std::vector<std::string> values;
    for (const char* key : kNamedFirst) values.push_back(value_of_key(pair, key));
    for (const std::string& key : keys) values.push_back(value_of_key(pair, key));
    cells.insert(std::move(values));
  }
  return cells.size();
}

}  // namespace

Facts facts_of(const std::vector<const Record*>& records) {
  Facts facts;
  for (const Record* record : records) {
    add_facts(record->at("environment"), "", facts);
    add_facts(record->at("code"), "code", facts);
    if (record->at("inputs").is_object()) add_facts(record->at("inputs"), "inputs", facts);
    for (const char* key : {"threads_per_rank", "backend", "jobs"})
      add_facts(record->at("placement." + std::string(key)), key, facts);
  }
  return facts;
}

ComparedSide::ComparedSide(const std::vector<Record>& all) {
  for (const Record& record : all) {
    if (!record.finished()) continue;
    records.push_back(&record);
    identities.push_back(identity_of(record));
  }
}

std::set<std::string> ComparedSide::values(const std::string& key) const {
  std::set<std::string> found;
  for (const RunIdentity& identity : identities) {
    const auto entry = identity.find(key);
    found.insert(entry == identity.end() ? "none" : entry->second);
  }
  return found;
}

std::vector<DifferingKey> differing_keys(const ComparedSide& a, const ComparedSide& b) {
  std::vector<DifferingKey> differing;
  for (const std::string& key : all_keys(a, b)) {
    DifferingKey compared{key, a.values(key), b.values(key)};
    const bool constant = compared.a.size() == 1 && compared.b.size() == 1;
    if (key != "seed" && constant && compared.a != compared.b) differing.push_back(std::move(compared));
  }
  return differing;
}

std::vector<RunPair> pairs_of(const ComparedSide& a, const ComparedSide& b,
                              const std::vector<DifferingKey>& differing) {
  const auto common = [&](RunIdentity identity) {
    for (const DifferingKey& key : differing) identity.erase(key.key);
    return identity;
  };
  std::map<RunIdentity, const Record*> partners;
  for (size_t i = 0; i < b.records.size(); ++i) partners[common(b.identities[i])] = b.records[i];
  std::vector<RunPair> pairs;
  for (size_t i = 0; i < a.records.size(); ++i) {
    const RunIdentity identity = common(a.identities[i]);
    if (const auto found = partners.find(identity); found != partners.end())
      pairs.push_back({a.records[i], found->second, identity});
  }
  return pairs;
}

std::vector<DifferingKey> differing_facts(const ComparedSide& a, const ComparedSide& b) {
  const Facts of_a = facts_of(a.records), of_b = facts_of(b.records);
  std::map<std::string, DifferingKey> all;
  for (const auto& [key, values] : of_a) all[key] = {key, values, {}};
  for (const auto& [key, values] : of_b) {
    all[key].key = key;
    all[key].b = values;
  }
  std::vector<DifferingKey> differing;
  for (auto& [key, values] : all)
    if (values.a != values.b) differing.push_back(std::move(values));
  return differing;
}

std::set<std::string> telling_keys(const std::vector<RunPair>& pairs) {
  std::set<std::string> keys;
  for (const RunPair& pair : pairs)
    for (const auto& [key, value] : pair.common) keys.insert(key);
  for (const char* key : kNamedFirst) keys.erase(key);
  keys.erase("seed");
  const size_t all = cells_told_apart(pairs, keys);
  for (const std::string& key : std::set<std::string>(keys)) {
    keys.erase(key);
    if (cells_told_apart(pairs, keys) < all) keys.insert(key);
  }
  return keys;
}

std::string cell_name(const RunPair& pair, const std::set<std::string>& telling) {
  std::string name = value_of_key(pair, "strategy");
  const std::string towers = value_of_key(pair, "towers"), batch = value_of_key(pair, "batch_per_tower");
  if (!towers.empty() && !batch.empty()) name += (name.empty() ? "" : " ") + towers + "x" + batch;
  for (const std::string& key : telling)
    name += (name.empty() ? "" : ", ") + key + "=" + value_of_key(pair, key);
  return name.empty() ? "all" : name;
}

}  // namespace bnlab
