#include "harness/store/code_version.hpp"

#include <sstream>

#include "harness/numerics/panel.hpp"

namespace bnlab {
namespace {

// The fingerprint of all sources that runs compute with, the first that cmake/fingerprint.py prints.
std::string fingerprint_of_all() {
  std::istringstream words(BNLAB_FINGERPRINTS);
  std::string name, print;
  words >> name >> print;
  return print;
}

}  // namespace

Json code_version() {
  return {{"version", BNLAB_VERSION},
          {"git", or_null(std::string(BNLAB_GIT_REVISION))},
          {"dirty", static_cast<bool>(BNLAB_GIT_DIRTY)},
          {"fingerprint", fingerprint_of_all()}};
}

Json code_version(const Json& spec, const std::string& device) {
  Json version = code_version();
  version["numerics"] = numerics_of(spec, device);
  return version;
}

}  // namespace bnlab
