// Names of files that look alike and are spelt in several ways: an "ü" is one character or, as some systems
// write it, a "u" with a mark behind it.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace bnlab {

// The same for all spellings of a name (canonical equivalence of Unicode), another one for every other name.
std::u32string canonical(const std::string& name);

// Files by whichever spelling they are asked for.
class Spellings {
 public:
  // The path as the folders on the way spell it; unchanged where they have no such file.
  std::filesystem::path find(const std::filesystem::path& path);

 private:
  std::map<std::filesystem::path, std::map<std::u32string, std::filesystem::path>> names_;  // by folder
};

}  // namespace bnlab
