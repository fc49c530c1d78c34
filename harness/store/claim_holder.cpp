#include "harness/store/claim_holder.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "harness/store/record.hpp"

namespace bnlab {
namespace {

std::string first_line(const std::string& file) {
  std::string line;
  std::ifstream in(file);
  std::getline(in, line);
  return line;
}

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

}  // namespace

std::string process_start(long process) {
  constexpr int kState = 3,
                kStartTime = 22;  // fields of /proc/PID/stat; the second one is a name in brackets
  const std::string stat = first_line("/proc/" + std::to_string(process) + "/stat");
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string word;
  for (int field = kState; field <= kStartTime && fields >> word; ++field) {
    if (field == kState && word == "Z") {  // it has ended, and its parent has not asked for it yet
      return "";
    }
  }
  return word;
}

std::string this_holder() {
  const char* job = std::getenv("SLURM_JOB_ID");
  return Json{{"host", this_host()},
              {"machine", this_machine()},
              {"pid", static_cast<long>(::getpid())},
              {"started", process_start(::getpid())},
              {"job", job == nullptr ? "" : job},
              {"since", now_utc()}}
      .dump();
}

std::string this_process() {
  const std::string place = this_host() + " " + this_machine() + " " + process_start(::getpid());
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016zx", std::hash<std::string>{}(place));
  return std::to_string(::getpid()) + "-" + digits.data();
}

ClaimHolder::ClaimHolder(const std::filesystem::path& claim_file) : claim_(Json::object()) {
  std::ifstream in(claim_file);
  const Json claim = Json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (claim.is_object()) {
    claim_ = claim;
  }
}

std::string ClaimHolder::name() const {
  const std::string job = claim_.value("job", "");
  return "process " + std::to_string(claim_.value("pid", 0L)) + " on " + claim_.value("host", "a machine") +
         (job.empty() ? "" : " (job " + job + ")") + " since " + claim_.value("since", "just now");
}

Json ClaimHolder::json() const {
  Json told = Json::object();
  for (const char* key : {"host", "pid", "job", "since"}) {
    told[key] = claim_.value(key, Json());
  }
  return told;
}

bool ClaimHolder::is_on_this_machine() const {
  return claim_.value("machine", "") == this_machine();
}

bool ClaimHolder::has_died() const {
  const long process = claim_.value("pid", 0L);
  const bool is_of_another_user =
      ::kill(static_cast<pid_t>(process), 0) != 0 && errno == EPERM;  // perhaps hidden
  return is_on_this_machine() && !is_of_another_user && process_start(process) != claim_.value("started", "");
}

}  // namespace bnlab
