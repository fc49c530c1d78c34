#include "harness/report/pairing.hpp"

#include "harness/error.hpp"
#include "harness/report/facts.hpp"

namespace bnlab {
namespace {

constexpr const char* kPlacementKey = "placement";

std::string identity_text(const std::string& key, const Json& value) {
  const std::string family = family_at(key), name = value.is_object() ? value.value("name", "") : "";
  if (find_registered(family, name) != nullptr) return label(value, family);
  if (!name.empty() && value.size() == 1) return name;
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// With the defaults of this program filled in, so that a key that one record lacks is no difference; a spec that this
// program cannot read stays as it is.
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
  for (const auto& [key, value] : spec.items()) {
    if (changes_result(key)) identity[key] = identity_text(key, value);
  }
  identity[kPlacementKey] = record.placement();
  return identity;
}

struct Side {
  std::vector<const Record*> records;
  std::vector<RunIdentity> identities;

  explicit Side(const std::vector<Record>& all) {
    for (const Record& record : all) {
      if (!record.finished()) continue;
      records.push_back(&record);
      identities.push_back(identity_of(record));
    }
  }
  std::set<std::string> values(const std::string& key) const {
    std::set<std::string> found;
    for (const RunIdentity& identity : identities) {
      const auto entry = identity.find(key);
      found.insert(entry == identity.end() ? "none" : entry->second);
    }
    return found;
  }
};

std::set<std::string> all_keys(const Side& a, const Side& b) {
  std::set<std::string> keys;
  for (const Side* side : {&a, &b}) {
    for (const RunIdentity& identity : side->identities) {
      for (const auto& [key, value] : identity) keys.insert(key);
    }
  }
  return keys;
}

// Keys that have one value in all of A and another in all of B. Seeds are never exchanged for each other.
std::vector<DifferingKey> differing_keys(const Side& a, const Side& b) {
  std::vector<DifferingKey> differing;
  for (const std::string& key : all_keys(a, b)) {
    DifferingKey compared{key, a.values(key), b.values(key)};
    const bool constant = compared.a.size() == 1 && compared.b.size() == 1;
    if (key != "seed" && constant && compared.a != compared.b) differing.push_back(std::move(compared));
  }
  return differing;
}

std::vector<RunPair> pairs_of(const Side& a, const Side& b, const std::vector<DifferingKey>& differing) {
  const auto common = [&](RunIdentity identity) {
    for (const DifferingKey& key : differing) identity.erase(key.key);
    return identity;
  };
  std::map<RunIdentity, const Record*> partners;
  for (size_t i = 0; i < b.records.size(); ++i) partners[common(b.identities[i])] = b.records[i];
  std::vector<RunPair> pairs;
  for (size_t i = 0; i < a.records.size(); ++i) {
    const RunIdentity identity = common(a.identities[i]);
    if (const auto found = partners.find(identity); found != partners.end()) {
      pairs.push_back({a.records[i], found->second, identity});
    }
  }
  return pairs;
}

std::vector<DifferingKey> differing_facts(const Side& a, const Side& b) {
  const Facts of_a = facts_of(a.records), of_b = facts_of(b.records);
  std::map<std::string, DifferingKey> all;
  for (const auto& [key, values] : of_a) all[key] = {key, values, {}};
  for (const auto& [key, values] : of_b) {
    all[key].key = key;
    all[key].b = values;
  }
  std::vector<DifferingKey> differing;
  for (auto& [key, values] : all) {
    if (values.a != values.b) differing.push_back(std::move(values));
  }
  return differing;
}

}  // namespace

Pairing pair_runs(const std::vector<Record>& a, const std::vector<Record>& b) {
  const Side of_a(a), of_b(b);
  Pairing pairing;
  pairing.spec = differing_keys(of_a, of_b);
  pairing.environment = differing_facts(of_a, of_b);
  pairing.pairs = pairs_of(of_a, of_b, pairing.spec);
  pairing.runs_a = static_cast<int>(of_a.records.size());
  pairing.runs_b = static_cast<int>(of_b.records.size());
  return pairing;
}

}  // namespace bnlab
