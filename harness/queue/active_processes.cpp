#include "harness/queue/active_processes.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "harness/store/record.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/store/schema.hpp"
#include "harness/store/this_process.hpp"
#include "harness/support/error.hpp"

namespace bnlab {

namespace fs = std::filesystem;

std::string this_holder(double renews_every_s) {
  const char* job = std::getenv("SLURM_JOB_ID");
  return Json{{"host", this_host()},
              {"machine", this_machine()},
              {"pid", static_cast<long>(::getpid())},
              {"started", process_start(::getpid())},
              {"job", job == nullptr ? "" : job},
              {"since", now_utc()},
              {"renews_every_s", renews_every_s}}
      .dump();
}

namespace {

const Json& holder_schema() {
  static const Json schema = Json::parse(R"({"type": "object", "properties": {
    "host": {"type": "string"}, "machine": {"type": "string"}, "started": {"type": "string"},
    "pid": {"type": "integer", "minimum": 1, "maximum": 2147483647}, "job": {"type": "string"},
    "since": {"type": "string"}, "renews_every_s": {"type": "number", "minimum": 0}}})");
  return schema;
}

}  // namespace

ClaimHolder::ClaimHolder(const fs::path& file) : line_(Json::object()) {
  try {
    const std::string text = read_text(file);
    if (!Json::accept(text)) return;  // it may be half written, by a process that lives
    const Json line = parse_json(text, file.string());
    const std::vector<std::string> wrong = misfits(line, holder_schema(), Keys::required);
    if (wrong.empty())
      line_ = line;
    else
      damage_ = file.string() + ": " + wrong.front();
  } catch (const Error& error) {
    if (::access(file.c_str(), R_OK) == 0) damage_ = error.what();
  }
}

std::string ClaimHolder::name() const {
  const std::string job = line_.value("job", "");
  return "process " + std::to_string(line_.value("pid", 0L)) + " on " + line_.value("host", "a machine") +
         (job.empty() ? "" : " (job " + job + ")") + " since " + line_.value("since", "just now");
}

Json ClaimHolder::json() const {
  Json told = Json::object();
  for (const char* key : {"host", "pid", "job", "since"}) told[key] = line_.value(key, Json());
  return told;
}

bool ClaimHolder::is_on_this_machine() const {
  return line_.value("machine", "") == this_machine();
}

bool ClaimHolder::has_died() const {
  if (!damage_.empty()) return true;
  const long process = line_.value("pid", 0L);
  const bool is_of_another_user =
      ::kill(static_cast<pid_t>(process), 0) != 0 && errno == EPERM;  // perhaps hidden
  return is_on_this_machine() && !is_of_another_user && process_start(process) != line_.value("started", "");
}

double ClaimHolder::renews_every_s() const {
  constexpr double kOfOlderPrograms = 30;
  return line_.value("renews_every_s", kOfOlderPrograms);
}

ActiveProcesses::ActiveProcesses(const fs::path& results, double renews_every_s)
    : file_(results / ".running" / this_process()), text_(this_holder(renews_every_s)) {
  constexpr int kMostTries = 10;  // the last of the others may remove the folder between two lines
  for (int tries = 1;; ++tries) {
    std::error_code problem;
    fs::create_directories(file_.parent_path(), problem);
    if (problem == std::errc::permission_denied ||
        (::access(file_.parent_path().c_str(), W_OK) != 0 && errno == EACCES)) {
      throw Error(
          Error::Kind::environment,
          file_.parent_path().string() +
              ": permission denied; users who share a results folder need a group of their own for it, "
              "the group's right to write, and umask 002");
    }
    try {
      write_atomically(file_, text_ + "\n");
      return;
    } catch (const Error&) {
      if (tries == kMostTries) throw;
    }
  }
}

ActiveProcesses::~ActiveProcesses() {
  ::unlink(file_.c_str());
  ::rmdir(file_.parent_path().c_str());  // stays while others are in it
}

int ActiveProcesses::others() const {
  int live = 0;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(file_.parent_path(), none)) {
    const ClaimHolder holder(entry.path());
    if (entry.path() != file_ && holder.is_on_this_machine()) {
      if (holder.has_died())
        ::unlink(entry.path().c_str());
      else
        ++live;
    }
  }
  return live;
}

}  // namespace bnlab
