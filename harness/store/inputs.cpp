#include "harness/store/inputs.hpp"

#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "harness/experiment/dotted.hpp"
#include "harness/experiment/fingerprint.hpp"
#include "harness/experiment/run.hpp"
#include "harness/experiment/weights_file.hpp"
#include "harness/models/model_facts.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/tasks/task_facts.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHeading = "bnlab hashes 1";
constexpr uint64_t kMuch = uint64_t{1} << 30;  // bytes
constexpr int64_t kYoungest = 2'000'000'000;  // ns: a file that is younger may change within its time's grain

int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

// A safetensors file begins with the length of its header, 8 bytes little-endian, and the header, a JSON
// object.
void check_safetensors(const std::string& file) {
  std::array<unsigned char, 9> begin{};
  std::ifstream in(file, std::ios::binary);
  in.read(reinterpret_cast<char*>(begin.data()), begin.size());
  uint64_t header = 0;
  for (size_t i = 8; i-- > 0;) header = header << 8 | begin[i];
  if (!in || begin[8] != '{' || header > fs::file_size(file)) {
    throw Error(Error::Kind::data,
                file + ": expected a safetensors file, with the header of one" + pytorch_cure(file));
  }
}

std::string gigabytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB", static_cast<double>(bytes) / 1e9);
  return text;
}

// The folder that the model of a spec is read from; "" for none, and where a record's model is not known
// here.
std::string folder_of_model(const Json& model) {
  return find_registered("model", name_in(model)) == nullptr ? "" : facts_of<ModelFacts>(model).folder(model);
}

// What decides which files a run reads.
Json files_asked_for(const Json& spec) {
  Json asked = {{"task", spec.value("task", Json())}, {"init_from", spec.value("init_from", Json())}};
  if (const std::string folder = folder_of_model(spec.value("model", Json())); !folder.empty())
    asked["model"] = folder;
  if (asked["init_from"].is_object() && asked["init_from"].contains("file")) {
    Json& file = asked["init_from"]["file"];
    file = with_seed(file.get<std::string>(), spec.value("seed", uint64_t{0}));
  }
  return asked;
}

bool reads_the_same(const Json& entry, const Json& asked) {
  return entry.is_object() && entry.value("task", Json()) == asked["task"] &&
         entry.value("init_from", Json()) == asked["init_from"] &&
         entry.value("model", Json()) == asked.value("model", Json());
}

}  // namespace

Inputs::Inputs(fs::path results, std::string data_dir, std::function<void(const std::string&)> say)
    : cache_(std::move(results) / ".hashes"), data_dir_(std::move(data_dir)), say_(std::move(say)) {
  read_known();
}

void Inputs::read_known() {
  std::istringstream in;
  try {
    in.str(read_text(cache_));
  } catch (const Error&) {  // all is read again
  }
  std::string line;
  if (!std::getline(in, line) || line != kHeading) return;
  while (std::getline(in, line)) {
    std::istringstream words(line);
    Known known;
    std::string name;
    if (words >> known.hash >> known.stamp.size >> known.stamp.inode >> known.stamp.time_ns &&
        std::getline(words.ignore(1), name)) {
      known_[name] = known;
    }
  }
}

void Inputs::keep() const {
  if (!changed_) return;
  std::ostringstream text;
  text << kHeading << "\n";
  for (const auto& [name, known] : known_) {
    const bool settled = known.stamp.time_ns < now_ns() - kYoungest;
    if (settled && name.find('\n') == std::string::npos) {
      text << known.hash << " " << known.stamp.size << " " << known.stamp.inode << " " << known.stamp.time_ns
           << " " << name << "\n";
    }
  }
  try {
    fs::create_directories(cache_.parent_path());
    write_atomically(cache_, text.str());
  } catch (const std::exception&) {
    // All is read again next time.
  }
}

Inputs::Stamp Inputs::stamp_of(const std::string& file) {
  struct stat status{};
  errno = 0;
  if (::stat(file.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    throw Error(Error::Kind::data, file + ": expected a file: " +
                                       (errno != 0 ? std::strerror(errno) : "this is no ordinary one"));
  }
  return {static_cast<uint64_t>(status.st_size), static_cast<uint64_t>(status.st_ino),
          int64_t{status.st_ctim.tv_sec} * 1'000'000'000 + status.st_ctim.tv_nsec};
}

void Inputs::hash_unknown(const std::map<std::string, std::string>& files) {
  std::map<std::string, Stamp> unknown;
  uint64_t bytes = 0;
  for (const auto& [name, file] : files) {
    const Stamp stamp = stamp_of(file);
    if (const auto found = known_.find(name); found == known_.end() || found->second.stamp != stamp) {
      unknown[name] = stamp;
      bytes += stamp.size;
    }
  }
  if (bytes > kMuch) {
    say_("reading " + gigabytes(bytes) + " in " + std::to_string(unknown.size()) +
         " files once, to know them again");
  }
  for (const auto& [name, stamp] : unknown) {
    known_[name] = {stamp, fingerprint_of_file(files.at(name))};
    changed_ = true;
  }
}

Json Inputs::fingerprint(const fs::path& root, const std::vector<std::string>& files) {
  std::map<std::string, std::string> by_name;
  for (const std::string& file : files) {
    const std::string name = fs::path(file).lexically_relative(root).generic_string();
    by_name[name.empty() ? file : name] = file;
  }
  hash_unknown(by_name);
  uint64_t bytes = 0;
  std::string all;
  for (const auto& [name, unused] : by_name) {
    const Known& known = known_.at(name);
    bytes += known.stamp.size;
    all += name + '\0' + std::to_string(known.stamp.size) + '\0' + known.hash + '\0';
  }
  return {{"files", by_name.size()}, {"bytes", bytes}, {"fingerprint", bnlab::fingerprint(all)}};
}

Json Inputs::of(const RunSpec& run) {
  Json inputs = Json::object();
  const auto once = [&](const std::string& question, const auto& answer) {
    const auto found = asked_.find(question);
    return found != asked_.end() ? found->second : asked_[question] = answer();
  };
  if (reads_files(run.task)) {
    inputs["data"] = once(run.task.dump(), [&] {
      return fingerprint(folder_of_files(run.task, data_dir_), files_of_task(run.task, data_dir_));
    });
  }
  if (const std::string folder = folder_of_model(run.model); !folder.empty()) {
    inputs["model"] = once("model " + folder, [&] {
      std::vector<std::string> files;
      std::error_code missing;  // then the graph is said to be
      for (const auto& entry : fs::directory_iterator(folder, missing))
        if (entry.path().filename() == "graph.json" || entry.path().extension() == ".safetensors")
          files.push_back(entry.path().string());
      if (files.empty())
        throw Error(Error::Kind::data,
                    "model.file: expected a folder that bnlab.export wrote, got " + folder);
      return fingerprint(folder, files);
    });
  }
  if (run.init_from) {
    const std::string& file = run.init_from->file;
    if (file.find('*') != std::string::npos) {
      throw Error(Error::Kind::data,
                  "init_from.file: expected one file of this name, got none or several: " + file);
    }
    inputs["weights"] = once(file, [&] {
      try {
        const Json print = fingerprint("", {file});
        check_safetensors(file);
        return print;
      } catch (const Error& error) {
        throw Error(error.kind(), std::string("init_from.file: ") + error.what());
      }
    });
  }
  return inputs;
}

LastInputs::LastInputs(const std::filesystem::path& experiment_folder)
    : file_(experiment_folder / "inputs.json") {
  try {
    if (std::filesystem::exists(file_)) entries_ = read_json(file_);
  } catch (const Error&) {
    // It is made anew by the next run.
  }
  if (!entries_.is_array()) entries_ = Json::array();
}

void LastInputs::set(const RunSpec& run, const Json& inputs) {
  Json asked = files_asked_for(run.resolved);
  for (Json& entry : entries_) {
    if (reads_the_same(entry, asked)) {
      changed_ = changed_ || entry["inputs"] != inputs;
      entry["inputs"] = inputs;
      return;
    }
  }
  if (!inputs.empty()) {
    asked["inputs"] = inputs;
    entries_.push_back(std::move(asked));
    changed_ = true;
  }
}

Json LastInputs::of(const Json& spec) const {
  const Json asked = files_asked_for(spec);
  for (const Json& entry : entries_)
    if (reads_the_same(entry, asked)) return entry.value("inputs", Json());
  return nullptr;
}

void LastInputs::keep() const {
  if (changed_) {
    std::filesystem::create_directories(file_.parent_path());
    write_json(file_, entries_);
  }
}

}  // namespace bnlab
