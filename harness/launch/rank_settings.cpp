#include "harness/launch/rank_settings.hpp"

#include <string.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "harness/communicator/host/shared_gpus.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

// The command line of this process, word by word.
std::vector<std::string> own_arguments() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

std::map<std::string, std::string> rank_settings(bool shared_gpus) {
  // glibc gives tensors above 32 MB back to the kernel and pays for their pages again at every step,
  // unless told otherwise.
  std::map<std::string, std::string> unless_chosen{{"MALLOC_MMAP_THRESHOLD_", "4294967296"},
                                                   {"MALLOC_TRIM_THRESHOLD_", "4294967296"},
                                                   {"MALLOC_TOP_PAD_", "67108864"},
                                                   {"MALLOC_ARENA_MAX", "1"}};
  // A collective that has taken too long ends its rank at once. Before that, c10d's watchdog would wait a
  // minute for other ranks to write down what they do, which nobody here reads.
  unless_chosen.emplace("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "100");
  if (shared_gpus) unless_chosen.merge(shared_gpu_settings());
  // A waiting thread that spins on a shared core costs a factor of ten.
  std::map<std::string, std::string> settings{{"OMP_WAIT_POLICY", "PASSIVE"}};
  for (const auto& [name, value] : unless_chosen) {
    const char* chosen_by_user = std::getenv(name.c_str());
    settings[name] = chosen_by_user != nullptr ? chosen_by_user : value;
  }
  return settings;
}

std::map<std::string, std::string> settings_to_change(const std::map<std::string, std::string>& settings) {
  std::map<std::string, std::string> other = settings;
  std::erase_if(other, [](const auto& setting) {
    const char* present = std::getenv(setting.first.c_str());
    return present != nullptr && setting.second == present;
  });
  return other;
}

void start_anew_with(const std::map<std::string, std::string>& settings) {
  const std::map<std::string, std::string> other = settings_to_change(settings);
  if (other.empty()) return;
  for (const auto& [name, value] : other) setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  std::vector<std::string> arguments = own_arguments();
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
  throw Error(Error::Kind::environment, std::string("cannot start bnlab anew: ") + strerror(errno));
}

}  // namespace bnlab
