#include "harness/cli/more/more.hpp"

#include <algorithm>
#include <filesystem>

#include "harness/cli/options.hpp"
#include "harness/launch/start_program.hpp"

namespace bnlab::more {

void Measured::describe(Arguments& option) {
  typed = option.typed();
  program = std::filesystem::read_symlink("/proc/self/exe").string();
  option("--threads N", threads, "Threads of each rank. Default: its share of the cores")
      .from(1, kMostAtOnce);
  describe_data(option, data_dir);
}

int Measured::start_ranks(int count, Words more) const {
  Words words = typed;
  const auto is_count = [](const std::string& word) {
    return word == "--ranks" || word.starts_with("--ranks=");
  };
  if (const auto found = std::ranges::find_if(words, is_count); found != words.end())
    words.erase(found, found + (*found == "--ranks" ? 2 : 1));
  words.insert(words.begin(), program);
  words.insert(words.end(), more.begin(), more.end());
  return start_program({.ranks = count, .threads = threads, .words = words});
}

}  // namespace bnlab::more
