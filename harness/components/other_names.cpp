#include "harness/components/other_names.hpp"

#include <cctype>
#include <map>

#include "harness/components/registry.hpp"

namespace bnlab {
namespace {

// "syncbatchnorm" of "torch.nn.SyncBatchNorm", "batchnorm" of "BatchNorm2d".
std::string plain(const std::string& name) {
  std::string text;
  for (const unsigned char c : name.substr(name.rfind('.') + 1)) {
    if (std::isalnum(c) != 0) {
      text += static_cast<char>(std::tolower(c));
    }
  }
  const size_t size = text.size();
  const bool dimensions =
      size > 2 && text[size - 1] == 'd' && std::isdigit(static_cast<unsigned char>(text[size - 2])) != 0;
  return dimensions ? text.substr(0, size - 2) : text;
}

std::map<std::pair<std::string, std::string>, std::string>& told() {
  static std::map<std::pair<std::string, std::string>, std::string> names;
  return names;
}

}  // namespace

OtherNames::OtherNames(const std::string& family,
                       const std::vector<std::pair<std::string, std::string>>& names) {
  for (const auto& [theirs, ours] : names) {
    told()[{family, plain(theirs)}] = ours;
  }
}

std::string answer_to_other_name(const std::string& family, const std::string& name) {
  const std::string wanted = plain(name);
  const auto answer = [](const std::string& ours) { return "; bnlab calls it \"" + ours + "\""; };
  if (const auto found = told().find({family, wanted}); found != told().end()) {
    return answer(found->second);
  }
  for (const std::string& ours : registered_names(family)) {
    if (plain(ours) == wanted) {
      return answer(ours);
    }
  }
  return "";
}

}  // namespace bnlab
