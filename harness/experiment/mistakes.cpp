#include "harness/experiment/mistakes.hpp"

#include "harness/experiment/dotted.hpp"
#include "harness/support/error.hpp"

namespace bnlab {

void Mistakes::add(const std::string& path, const std::string& message) {
  const std::string* file = &file_;
  size_t longest = 0;
  for (const auto& [origin, origin_file] : origins_) {
    if (lies_within(path, origin) && origin.size() > longest) {
      file = &origin_file;
      longest = origin.size();
    }
  }
  const auto meant = meant_.find(path);
  add_in(*file, path, message + (meant == meant_.end() ? "" : meant->second));
}

void Mistakes::add_in(const std::string& file, const std::string& path, const std::string& message) {
  const std::string line = file + ": " + path + (path.empty() ? "" : ": ") + message;
  if (known_.insert(line).second) lines_.push_back(line);
}

void Mistakes::add(const Problems& problems) {
  for (const auto& [path, message] : problems.found()) add(path, message);
}

void Mistakes::throw_if_any() const {
  if (!lines_.empty()) throw Error(Error::Kind::spec, joined(lines_, "\n"));
}

}  // namespace bnlab
