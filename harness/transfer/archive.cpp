#include "harness/transfer/archive.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "harness/error.hpp"

namespace bnlab {
namespace {

constexpr size_t kBlock = 512;  // headers have this size, and contents are filled up to a multiple of it

// The fields of a header that are used here: where each begins, and its size.
struct HeaderField {
  size_t at, size;
};
constexpr HeaderField kName{0, 100}, kMode{100, 8}, kSize{124, 12}, kTime{136, 12}, kChecksum{148, 8},
    kType{156, 1}, kMagic{257, 8}, kPrefix{345, 155};

void put(std::string& header, HeaderField field, const std::string& text) {
  header.replace(field.at, std::min(text.size(), field.size), text, 0, field.size);
}

std::string octal(size_t value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%0*zo", digits, value);
  return text;
}

// The sum of all bytes of a header, with spaces in place of the sum itself.
size_t header_sum(std::string header) {
  put(header, kChecksum, std::string(kChecksum.size, ' '));
  size_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  return sum;
}

std::string header_of(const std::string& path, size_t size) {
  // A long path is cut at a slash into a prefix and a name.
  const size_t cut =
      path.size() <= kName.size ? std::string::npos : path.find('/', path.size() - kName.size - 1);
  const std::string name = cut == std::string::npos ? path : path.substr(cut + 1);
  const std::string prefix = cut == std::string::npos ? "" : path.substr(0, cut);
  if (name.size() > kName.size || prefix.size() > kPrefix.size || name.empty()) {
    throw Error(Error::Kind::data, path + ": the name is too long for an archive");
  }
  std::string header(kBlock, '\0');
  put(header, kName, name);
  put(header, kMode, "0000644");
  put(header, kSize, octal(size, 11));
  put(header, kTime, octal(0, 11));
  put(header, kType, "0");
  put(header, kMagic, std::string("ustar\00000", 8));
  put(header, kPrefix, prefix);
  put(header, kChecksum, octal(header_sum(header), 6) + '\0' + ' ');
  return header;
}

std::string padding(size_t size) {
  return std::string((kBlock - size % kBlock) % kBlock, '\0');
}

std::string text_of(std::string_view header, HeaderField field) {
  const std::string_view bytes = header.substr(field.at, field.size);
  return std::string(bytes.substr(0, bytes.find('\0')));
}

// A path that stays below the folder in which it is unpacked.
bool stays_below(const std::string& path) {
  return !path.empty() && path.front() != '/' && ("/" + path + "/").find("/../") == std::string::npos;
}

}  // namespace

std::string tar_archive(const Files& files) {
  std::string archive;
  for (const auto& [path, content] : files) {
    archive += header_of(path, content.size()) + content + padding(content.size());
  }
  return archive + std::string(2 * kBlock, '\0');
}

Files read_tar(std::string_view bytes, const std::string& archive) {
  const auto damaged = [&](const std::string& what) {
    return Error(Error::Kind::data, archive + ": " + what);
  };
  Files files;
  for (size_t at = 0;;) {
    if (bytes.size() - at < kBlock) throw damaged("the archive is cut off");
    const std::string_view header = bytes.substr(at, kBlock);
    if (header.find_first_not_of('\0') == std::string_view::npos) return files;  // the end
    if (header.substr(kMagic.at, 5) != "ustar" ||
        std::strtoull(text_of(header, kChecksum).c_str(), nullptr, 8) != header_sum(std::string(header))) {
      throw damaged("no tar archive, or a damaged one");
    }
    const std::string prefix = text_of(header, kPrefix);
    const std::string path = (prefix.empty() ? "" : prefix + "/") + text_of(header, kName);
    const size_t size = std::strtoull(text_of(header, kSize).c_str(), nullptr, 8);
    if (header[kType.at] != '0' || !stays_below(path)) throw damaged(path + " is no file that belongs there");
    at += kBlock;
    if (size + padding(size).size() > bytes.size() - at) throw damaged("the archive is cut off in " + path);
    files[path] = bytes.substr(at, size);
    at += size + padding(size).size();
  }
}

}  // namespace bnlab
