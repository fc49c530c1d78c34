#include "harness/store/run_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "harness/store/this_process.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

constexpr int kDeepest = 64;  // objects and arrays inside each other, far more than any file of ours has
constexpr size_t kLargestJson = size_t{64} << 20;  // bytes, likewise

[[noreturn]] void fail(const std::string& what, const std::filesystem::path& file) {
  throw Error(Error::Kind::environment, what + " " + file.string() + ": " + std::strerror(errno));
}

// A file descriptor that is closed on every way out. Messages name `asked`, the file that somebody asked for.
class Descriptor {
 public:
  Descriptor(const std::filesystem::path& file, int flags) : Descriptor(file, flags, file, "cannot open") {}
  Descriptor(const std::filesystem::path& file, int flags, const std::filesystem::path& asked,
             const std::string& problem)
      : file_(asked), descriptor_(::open(file.c_str(), flags | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) fail(problem, file_);
  }
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  void write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = ::write(descriptor_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("cannot write", file_);
      text.remove_prefix(static_cast<size_t>(written));
    }
  }
  void sync() {
    if (::fsync(descriptor_) != 0) fail("cannot sync", file_);
  }
  // Some file systems report a full disk only here.
  void close() {
    if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot close", file_);
  }

 private:
  std::filesystem::path file_;
  int descriptor_;
};

// How deep brackets stand inside each other, those in texts apart. Faster than to ask the parser at every
// value.
int depth_of(const std::string& json) {
  int depth = 0, deepest = 0;
  bool in_text = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (c == '\\')
      ++i;  // whatever follows; outside a text the parser refuses it
    else if (c == '"')
      in_text = !in_text;
    else if (!in_text && (c == '{' || c == '['))
      deepest = std::max(deepest, ++depth);
    else if (!in_text && (c == '}' || c == ']'))
      --depth;
  }
  return deepest;
}

// "line 3, column 7" of the byte, counted from 1.
std::string place_in(const std::string& text, size_t byte) {
  const std::string before = text.substr(0, std::min(byte, text.size()));
  const size_t line_feed = before.rfind('\n');
  const size_t begin = line_feed == std::string::npos ? 0 : line_feed + 1;
  return "line " + std::to_string(std::ranges::count(before, '\n') + 1) + ", column " +
         std::to_string(before.size() - begin);
}

}  // namespace

std::string Placement::name() const {
  return std::to_string(ranks) + "x" + std::to_string(towers_per_rank) + "-" + name_of(device) +
         (nodes > 1 ? "-" + std::to_string(nodes) + "nodes" : "") +
         (exchange && exchange != Exchange::shared_memory ? "-" + name_of(*exchange) : "");
}

std::filesystem::path experiment_folder(const std::filesystem::path& results, const std::string& experiment) {
  return results / experiment;
}

std::filesystem::path run_folder(const std::filesystem::path& results, const std::string& experiment,
                                 const std::string& run_id, const Placement& placement) {
  return experiment_folder(results, experiment) / run_id / placement.name();
}

void write_atomically(const std::filesystem::path& file, std::string_view text) {
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
  const std::filesystem::path temporary =
      folder / ("." + file.filename().string() + "." + this_process() + ".tmp");
  try {
    ::unlink(temporary.c_str());  // whoever made it: nothing is written through a link of somebody else's
    Descriptor out(temporary, O_WRONLY | O_CREAT | O_EXCL, file, "cannot write");
    out.write(text);
    out.sync();
    out.close();
    if (::rename(temporary.c_str(), file.c_str()) != 0) fail("cannot write", file);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
  Descriptor(folder, O_RDONLY | O_DIRECTORY).sync();  // the new name, too, must survive a power cut
}

void copy_synced(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code problem;
  std::filesystem::copy_file(from, to, problem);
  if (problem) {
    throw Error(Error::Kind::environment,
                "cannot copy " + from.string() + " to " + to.string() + ": " + problem.message());
  }
  Descriptor(to, O_RDONLY).sync();
}

void make_folder(const std::filesystem::path& folder) {
  if (::mkdir(folder.c_str(), 0777) == 0)
    Descriptor(folder.parent_path(), O_RDONLY | O_DIRECTORY).sync();
  else if (errno != EEXIST)
    fail("cannot make", folder);
}

void write_json(const std::filesystem::path& file, const Json& value) {
  write_atomically(file, value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Json read_json(const std::filesystem::path& file) {
  return parse_json(read_text(file, kLargestJson), file.string());
}

Json parse_json(const std::string& text, const std::string& file) {
  if (depth_of(text) > kDeepest)
    throw Error(Error::Kind::data, file + ": nested deeper than " + std::to_string(kDeepest) + " levels");
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    throw Error(Error::Kind::data, file + " is damaged: no JSON in " + place_in(text, error.byte));
  } catch (const Json::out_of_range&) {
    throw Error(Error::Kind::data, file + " is damaged: a number in it is not finite");
  }
}

std::vector<std::filesystem::path> folders_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code missing;
  for (const auto& entry : std::filesystem::directory_iterator(folder, missing))
    if (entry.is_directory() && entry.path().filename().string()[0] != '.') found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

std::vector<std::filesystem::path> run_folders(const std::filesystem::path& results,
                                               const std::string& experiment) {
  std::vector<std::filesystem::path> found;
  for (const auto& run : folders_in(experiment_folder(results, experiment)))
    for (auto& placement : folders_in(run)) found.push_back(std::move(placement));
  return found;
}

}  // namespace bnlab
