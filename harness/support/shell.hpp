// Commands that messages propose, written as a shell takes them, whatever the names of files hold.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace bnlab {

inline std::string shell_word(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./,:@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

inline std::string shell_command(const std::string& command, const std::vector<std::string>& words) {
  std::string text = command;
  for (const std::string& word : words) text += " " + shell_word(word);
  return text;
}

// A command that works in the folder of the sources alone, where the names of files lead, too.
inline std::string source_command(const std::string& command, std::vector<std::string> files) {
  for (std::string& file : files) file = std::filesystem::absolute(file).lexically_normal().string();
  return "in the folder of bnlab's sources: " + shell_command(command, files);
}

}  // namespace bnlab
