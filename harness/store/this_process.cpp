#include "harness/store/this_process.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

namespace bnlab {
namespace {

std::string first_line(const std::string& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

}  // namespace

std::string this_host() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return host.data();
}

std::string this_machine() {
  std::error_code none;
  return first_line("/proc/sys/kernel/random/boot_id") + " " +
         std::filesystem::read_symlink("/proc/self/ns/pid", none).string();
}

std::string process_start(long process) {
  constexpr int kState = 3,
                kStartTime = 22;  // fields of /proc/PID/stat; the second one is a name in brackets
  const std::string stat = first_line("/proc/" + std::to_string(process) + "/stat");
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string word;
  for (int field = kState; field <= kStartTime && fields >> word; ++field)
    if (field == kState && word == "Z")  // it has ended, and its parent has not asked for it yet
      return "";
  return word;
}

std::string this_process() {
  const std::string place = this_host() + " " + this_machine() + " " + process_start(::getpid());
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016zx", std::hash<std::string>{}(place));
  return std::to_string(::getpid()) + "-" + digits.data();
}

}  // namespace bnlab
