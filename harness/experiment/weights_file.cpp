#include "harness/experiment/weights_file.hpp"

#include <glob.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "harness/support/shell.hpp"

namespace bnlab {

std::string pytorch_cure(const std::string& file) {
  constexpr std::array kEndings = {".pth", ".pt", ".ckpt", ".pkl"};
  const std::filesystem::path path(file);
  if (std::ranges::none_of(kEndings, [&](const char* ending) { return path.extension() == ending; }))
    return "";
  std::filesystem::path converted = path;
  converted.replace_extension(".safetensors");
  return ", a checkpoint of PyTorch; this converts it, " +
         source_command("PYTHONPATH=scripts/python .venv/bin/python -m bnlab.convert",
                        {path.string(), converted.string()});
}

std::string with_seed(const std::string& pattern, uint64_t seed) {
  std::string text = pattern;
  const std::string mark = "{seed}", number = std::to_string(seed);
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + number.size()))
    text.replace(at, mark.size(), number);
  return text;
}

std::string file_of_seed(const std::string& pattern, uint64_t seed) {
  const std::string text = with_seed(pattern, seed);
  if (text.find('*') == std::string::npos) return text;
  ::glob_t found{};
  const bool one = ::glob(text.c_str(), 0, nullptr, &found) == 0 && found.gl_pathc == 1;
  const std::string file = one ? found.gl_pathv[0] : text;
  ::globfree(&found);
  return file;
}

}  // namespace bnlab
