// A disk that fails at a chosen moment. Preloaded into a program (LD_PRELOAD), this library counts what the
// process changes below a folder, call by call, and lets one of these calls fail, or all from that one on.
// The program knows nothing of it.
//
//   FAULT_BELOW  the folder, as an absolute path
//   FAULT_IN     "launcher" or "rank": the processes that it is meant for (`bnlab rank ...` is a rank)
//   FAULT_CALL   the name of the only calls that count, such as "write"; without it all do
//   FAULT_AT     the number of the call that fails, from 1 on
//   FAULT_ERRNO  what it fails with
//   FAULT_LASTS  "1": the calls after it fail, too
//   FAULT_LIST   a file that gets a line for each call: its name and its file
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <class Function>
Function* next(const char* name) {  // the function of that name that the program would have called
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

bool is_meant() {
  static const bool meant = [] {
    std::array<char, 4096> line{};
    FILE* file = std::fopen("/proc/self/cmdline", "r");
    const size_t length = std::fread(line.data(), 1, line.size() - 1, file);
    std::fclose(file);
    const size_t second = std::strlen(line.data()) + 1;
    const bool rank = second < length && std::strcmp(line.data() + second, "rank") == 0;
    return variable("FAULT_IN") == (rank ? "rank" : "launcher");
  }();
  return meant;
}

void list(const char* call, const std::string& file) {
  if (const std::string to = variable("FAULT_LIST"); !to.empty()) {
    const std::string line = std::string(call) + " " + file + "\n";
    const int out = next<int(const char*, int, ...)>("open")(to.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    next<ssize_t(int, const void*, size_t)>("write")(out, line.data(), line.size());
    ::close(out);
  }
}

// Whether this call fails; then errno says why.
bool fails(const char* call, const std::string& file) {
  static std::atomic<long> calls{0};
  const std::string below = variable("FAULT_BELOW") + "/", only = variable("FAULT_CALL");
  if (!is_meant() || (!only.empty() && only != call) || file.compare(0, below.size(), below) != 0)
    return false;
  list(call, file);
  const long number = ++calls, at = std::atol(variable("FAULT_AT").c_str());
  if (number != at && !(variable("FAULT_LASTS") == "1" && at > 0 && number > at)) return false;
  errno = std::atoi(variable("FAULT_ERRNO").c_str());
  return true;
}

bool fails(const char* call, int descriptor) {
  const int before = errno;
  std::array<char, PATH_MAX> file{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const bool known = ::readlink(link.c_str(), file.data(), file.size() - 1) > 0;
  errno = before;
  return known && fails(call, std::string(file.data()));
}

}  // namespace

extern "C" {

int open(const char* file, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  const bool failed = (flags & O_CREAT) != 0 && fails("open", std::string(file));
  return failed ? -1 : next<int(const char*, int, ...)>("open")(file, flags, mode);
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  return fails("write", descriptor)
             ? -1
             : next<ssize_t(int, const void*, size_t)>("write")(descriptor, bytes, count);
}

int fflush(FILE* stream) {
  return stream != nullptr && fails("fflush", ::fileno(stream)) ? EOF : next<int(FILE*)>("fflush")(stream);
}

int fsync(int descriptor) {
  return fails("fsync", descriptor) ? -1 : next<int(int)>("fsync")(descriptor);
}

int mkdir(const char* folder, mode_t mode) noexcept {
  return fails("mkdir", std::string(folder)) ? -1 : next<int(const char*, mode_t)>("mkdir")(folder, mode);
}

int rename(const char* from, const char* to) noexcept {
  return fails("rename", std::string(to)) ? -1 : next<int(const char*, const char*)>("rename")(from, to);
}

int link(const char* from, const char* to) noexcept {
  return fails("link", std::string(to)) ? -1 : next<int(const char*, const char*)>("link")(from, to);
}

}  // extern "C"
