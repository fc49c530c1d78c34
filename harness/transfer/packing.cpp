#include "harness/transfer/packing.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <sstream>

#include "harness/store/ledger.hpp"
#include "harness/store/record.hpp"
#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

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
  if (name.size() > kName.size || prefix.size() > kPrefix.size || name.empty())
    throw Error(Error::Kind::data, path + ": the name is too long for an archive");
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

// The number in a field: octal digits, then blanks and NULs to its end. Nothing where anything else stands
// there.
std::optional<size_t> number_in(std::string_view header, HeaderField field) {
  std::string_view text = header.substr(field.at, field.size);
  text = text.substr(0, text.find_last_not_of(std::string_view(" \0", 2)) + 1);
  size_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number, 8);
  const bool is_whole = problem == std::errc() && end == text.data() + text.size();
  return is_whole ? std::optional(number) : std::nullopt;
}

std::string text_of(std::string_view header, HeaderField field) {
  const std::string_view bytes = header.substr(field.at, field.size);
  return std::string(bytes.substr(0, bytes.find('\0')));
}

bool is_header(std::string_view bytes) {
  return bytes.size() >= kMagic.at + 5 && bytes.substr(kMagic.at, 5) == "ustar";
}

// A path that stays below the folder in which it is unpacked, and is written in one way only.
bool stays_below(const std::string& path) {
  return !path.empty() && path.front() != '/' && path != ".." && !path.starts_with("../") &&
         std::filesystem::path(path).lexically_normal() == path;
}

using Words = std::array<uint32_t, 8>;

// The first 32 bits behind the point of the square roots of the first 8 primes (section 5.3.3), and of the
// cube roots of the first 64 (section 4.2.2).
constexpr Words kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                          0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
constexpr std::array<uint32_t, 64> kConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

void add_block(Words& hash, const unsigned char* block) {
  std::array<uint32_t, 64> w{};
  for (size_t i = 0; i < 16; ++i)
    for (size_t k = 0; k < 4; ++k) w[i] = w[i] << 8 | block[4 * i + k];
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t early = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
    const uint32_t late = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + early + w[i - 7] + late;
  }
  auto [a, b, c, d, e, f, g, h] = hash;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t mixed = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t first = h + mixed + ((e & f) ^ (~e & g)) + kConstants[i] + w[i];
    const uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const Words added = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < hash.size(); ++i) hash[i] += added[i];
}

bool is_packed_of_gpu_check(const fs::path& file) {
  return file.filename() != kManifestFile && file.extension() != ".safetensors";
}

bool is_packed(const fs::path& file) {
  const std::string name = file.filename().string(), extension = file.extension().string();
  return name != kManifestFile && name != "job.json" && !name.ends_with(".report.json") &&
         extension != ".safetensors" && extension != ".log" && extension != ".tmp";
}

void check_manifest(const Files& files, Checked& checked) {
  const auto manifest = files.find(kManifestFile);
  if (manifest == files.end()) {
    checked.problems.push_back(std::string("there is no ") + kManifestFile + "; bnlab pack writes one");
    return;
  }
  Files listed;  // checksum by path
  std::istringstream lines(manifest->second);
  for (std::string digits, path; lines >> digits && std::getline(lines >> std::ws, path);)
    listed[path] = digits;
  checked.files = static_cast<int>(listed.size());
  for (const auto& [path, digits] : listed) {
    const auto file = files.find(path);
    if (file == files.end())
      checked.problems.push_back(path + " is missing");
    else if (sha256(file->second) != digits)
      checked.problems.push_back(path + " was changed");
  }
  for (const auto& [path, content] : files)
    if (path != kManifestFile && !listed.contains(path)) checked.problems.push_back(path + " was added");
}

// A record that this program understands must have the run id of its own spec.
void check_record(const std::string& path, const std::string& content, Checked& checked) {
  try {
    const Record record(parse_json(content, path), path);
    ++checked.records;
    if (const std::string reason = record.why_stale(); !reason.empty()) ++checked.stale[reason];
    std::string id;
    try {
      id = read_resolved(record.at("spec")).id;
    } catch (const Error&) {
      return;  // of a version that has other keys
    }
    if (id != record.run_id()) checked.problems.push_back(path + ": its spec is that of the run " + id);
  } catch (const Error& error) {
    checked.problems.push_back(error.what());
  }
}

}  // namespace

std::string tar_archive(const Files& files) {
  std::string archive;
  for (const auto& [path, content] : files)
    archive += header_of(path, content.size()) + content + padding(content.size());
  return archive + std::string(2 * kBlock, '\0');
}

Files read_tar(std::string_view bytes, const std::string& archive) {
  const auto damaged = [&](const std::string& what) {
    return Error(Error::Kind::data, archive + ": " + what);
  };
  Files files;
  for (size_t at = 0;;) {
    if (at == 0 && !is_header(bytes))
      throw damaged("no archive of results, as bnlab pack and scripts/gpu_check.sh write them");
    if (bytes.size() - at < kBlock) throw damaged("the archive is cut off");
    const std::string_view header = bytes.substr(at, kBlock);
    if (header.find_first_not_of('\0') == std::string_view::npos) return files;  // the end
    const std::optional<size_t> size = number_in(header, kSize);
    if (!is_header(header) || !size || number_in(header, kChecksum) != header_sum(std::string(header)))
      throw damaged("the archive is damaged at byte " + std::to_string(at));
    const std::string prefix = text_of(header, kPrefix);
    const std::string path = (prefix.empty() ? "" : prefix + "/") + text_of(header, kName);
    if (header[kType.at] != '0' || !stays_below(path)) throw damaged(path + " is no file that belongs there");
    at += kBlock;
    const size_t filled = *size + padding(*size).size();
    if (filled > bytes.size() - at) throw damaged("the archive is cut off in " + path);
    if (!files.emplace(path, bytes.substr(at, *size)).second) throw damaged(path + " comes twice");
    at += filled;
  }
}

// SHA-256 (FIPS 180-4). Manifests hold it, so that people who have no bnlab can check an archive with
// sha256sum.
std::string sha256(std::string_view bytes) {
  Words hash = kStart;
  // A one, zeros, and the number of bits in 64 bits fill the last block.
  std::string padded(bytes);
  padded += '\x80';
  padded.resize((padded.size() + 8 + 63) / 64 * 64, '\0');
  for (size_t i = 0; i < 8; ++i)
    padded[padded.size() - 1 - i] = static_cast<char>(bytes.size() * 8 >> 8 * i & 0xff);
  for (size_t at = 0; at < padded.size(); at += 64)
    add_block(hash, reinterpret_cast<const unsigned char*>(padded.data()) + at);
  std::string digits;
  for (const uint32_t word : hash) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", word);
    digits += text;
  }
  return digits;
}

Files files_to_pack(const fs::path& folder) {
  const auto is_wanted = fs::exists(folder / kGpuCheckFile) ? is_packed_of_gpu_check : is_packed;
  Files files;
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry)
    if (entry->path().filename().string().front() == '.')  // a run under way, or a file half written
      entry.disable_recursion_pending();
    else if (entry->is_regular_file() && !entry->is_symlink() && is_wanted(entry->path()))
      files[entry->path().lexically_relative(folder).generic_string()] = read_text(entry->path());
  return files;
}

std::string packed(const Files& files, const std::string& name) {
  Files below;
  std::string manifest;
  for (const auto& [path, content] : files) {
    below[name + "/" + path] = content;
    manifest += sha256(content) + "  " + path + "\n";
  }
  below[name + "/" + kManifestFile] = manifest;
  return tar_archive(below);
}

Files unpacked(const fs::path& archive) {
  const std::string bytes = read_text(archive), name = archive.string();
  if (bytes.starts_with("\x1f\x8b"))
    throw Error(Error::Kind::data, name + ": compressed; unpack it first: gunzip " + shell_word(name));
  Files files;
  for (auto& [path, content] : read_tar(bytes, name)) {
    if (!files.emplace(path.substr(path.find('/') + 1), content).second) {
      throw Error(Error::Kind::data,
                  name + ": two files of different folders in it are one to bnlab: " + path);
    }
  }
  if (!files.contains(kManifestFile) && !files.contains(kGpuCheckFile)) {
    throw Error(Error::Kind::data, name + ": no archive of results: there is no " + kManifestFile +
                                       " in it, which bnlab pack and scripts/gpu_check.sh write");
  }
  return files;
}

Checked check_files(const Files& files) {
  Checked checked;
  check_manifest(files, checked);
  for (const auto& [path, content] : files) {
    const std::string name = fs::path(path).filename().string();
    if (name == kRecordFile) check_record(path, content, checked);
    if (name != kLedgerFile) continue;
    std::istringstream lines(content);
    size_t number = 0;
    for (std::string line; std::getline(lines, line);)
      check_record(path + ":" + std::to_string(++number), line, checked);
  }
  return checked;
}

}  // namespace bnlab
