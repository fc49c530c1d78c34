#include "harness/training/run_log.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "harness/error.hpp"

namespace bnlab {

RunLog::RunLog(const std::string& file, const std::string& run_id, bool goes_on)
    : file_(file), out_(std::fopen(file.c_str(), goes_on ? "r+" : "w")) {
  if (!out_) {
    fail("open");
  }
  if (!goes_on) {
    write({{"kind", "start"}, {"schema_version", 1}, {"run_id", run_id}});
  }
}

void RunLog::write(Json line) {
  if (out_) {
    line["time_s"] = seconds();
    const std::string text = line.dump() + "\n";
    if (std::fwrite(text.data(), 1, text.size(), out_.get()) != text.size() || std::fflush(out_.get()) != 0) {
      fail("write");
    }
  }
}

void RunLog::describe(State& state) {
  if (out_ && !state.goes_on() && ::fsync(::fileno(out_.get())) != 0) {
    fail("write");
  }
  int64_t bytes = out_ ? std::ftell(out_.get()) : 0;
  double time_s = seconds();
  state.value("metrics.bytes", bytes);
  state.value("metrics.time_s", time_s);
  if (!state.goes_on()) {
    return;
  }
  begin_ = Clock::now() - std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(time_s));
  if (out_ &&
      (::ftruncate(::fileno(out_.get()), bytes) != 0 || std::fseek(out_.get(), bytes, SEEK_SET) != 0)) {
    fail("cut");
  }
}

void RunLog::fail(const std::string& what) const {
  throw Error(Error::Kind::environment, "cannot " + what + " " + file_ + ": " + std::strerror(errno));
}

}  // namespace bnlab
