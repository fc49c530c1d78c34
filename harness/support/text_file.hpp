// Files that other programs and people wrote, read whole: ordinary files alone, as large as their kind may
// be.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

#include "harness/support/error.hpp"

namespace bnlab {

inline constexpr size_t kLargestText = size_t{1} << 30;  // bytes, far more than any text that bnlab writes

// Throws Error (data) that names the file where it is missing, unreadable, none with contents (a named pipe
// would wait for a writer for ever) or larger than `most`.
inline std::string read_text(const std::filesystem::path& file, size_t most = kLargestText) {
  struct Opened {
    int descriptor;
    ~Opened() {
      if (descriptor >= 0) ::close(descriptor);
    }
  };
  const auto refuse = [&](const std::string& why) {
    throw Error(Error::Kind::data, "cannot read " + file.string() + ": " + why);
  };
  const Opened in{::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  struct stat status{};
  if (in.descriptor < 0 || ::fstat(in.descriptor, &status) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse("it is no ordinary file");
  if (static_cast<size_t>(status.st_size) > most) {
    refuse("it has " + std::to_string(status.st_size) + " bytes, and such a file at most " +
           std::to_string(most));
  }
  std::string text(static_cast<size_t>(status.st_size), '\0');
  size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t read = ::read(in.descriptor, text.data() + filled, text.size() - filled);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) refuse(std::strerror(errno));
    if (read == 0) break;  // it has become shorter meanwhile
    filled += static_cast<size_t>(read);
  }
  text.resize(filled);
  return text;
}

}  // namespace bnlab
