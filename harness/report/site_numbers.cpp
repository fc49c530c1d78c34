#include "harness/report/site_numbers.hpp"

#include <algorithm>

namespace bnlab {
namespace {

constexpr const char* kNumbers[] = {"saved_mean_error", "saved_variance_error", "between_sets"};

// Of the site in this place, where the record has one of that name.
std::optional<double> number_of(const Record& record, size_t place, const std::string& site,
                                const char* key) {
  const Json& sites = record.at("result.sites");
  const bool there = sites.is_array() && place < sites.size() && sites[place].value("name", "") == site;
  const Json& number = there ? value_at(sites[place], key) : record.at("no such key");
  return number.is_number() ? std::optional(number.get<double>()) : std::nullopt;
}

}  // namespace

std::vector<SiteNumbers> site_numbers(const std::vector<const Record*>& records) {
  std::vector<SiteNumbers> all;
  const auto first = std::ranges::find_if(
      records, [](const Record* record) { return record->at("result.sites").is_array(); });
  if (first == records.end()) return all;
  bool any = false;
  const Json& sites = (*first)->at("result.sites");
  for (size_t i = 0; i < sites.size(); ++i) {
    SiteNumbers site{sites[i].value("name", ""), {}};
    for (const char* key : kNumbers) {
      const SeedValues values =
          values_by_seed(records, [&](const Record& record) { return number_of(record, i, site.name, key); });
      if (!values.empty()) site.numbers[key] = values;
    }
    any = any || !site.numbers.empty();
    all.push_back(site);
  }
  return any ? all : std::vector<SiteNumbers>();
}

}  // namespace bnlab
