#include "harness/transfer/packing.hpp"

#include <algorithm>
#include <sstream>

#include "harness/error.hpp"
#include "harness/store/record.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

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
    if (file == files.end()) {
      checked.problems.push_back(path + " is missing");
    } else if (sha256(file->second) != digits) {
      checked.problems.push_back(path + " was changed");
    }
  }
  for (const auto& [path, content] : files) {
    if (path != kManifestFile && !listed.contains(path)) checked.problems.push_back(path + " was added");
  }
}

// A record that this program understands must have the run id of its own spec.
void check_record(const std::string& path, const std::string& content, Checked& checked) {
  try {
    const Record record(Json::parse(content), path);
    ++checked.records;
    std::string id;
    try {
      id = read_resolved(record.at("spec")).id;
    } catch (const Error&) {
      return;  // of a version that has other keys
    }
    if (id != record.run_id()) checked.problems.push_back(path + ": its spec is that of the run " + id);
  } catch (const Error& error) {
    checked.problems.push_back(error.what());
  } catch (const Json::exception& error) {
    checked.problems.push_back(path + " is no record: " + error.what());
  }
}

}  // namespace

Files files_to_pack(const fs::path& folder) {
  Files files;
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
    if (entry->path().filename().string().front() == '.') {  // a run under way, or a file half written
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && !entry->is_symlink() && is_packed(entry->path())) {
      files[entry->path().lexically_relative(folder).generic_string()] = read_text(entry->path());
    }
  }
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
  Files files;
  for (auto& [path, content] : read_tar(read_text(archive), archive.string())) {
    files[path.substr(path.find('/') + 1)] = content;
  }
  return files;
}

Checked check_files(const Files& files) {
  Checked checked;
  check_manifest(files, checked);
  for (const auto& [path, content] : files) {
    if (fs::path(path).filename() == kRecordFile) check_record(path, content, checked);
  }
  return checked;
}

}  // namespace bnlab
