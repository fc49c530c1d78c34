// What runs read, told apart by content: the files of their tasks, and the weights that they start from. A
// fingerprint covers names (below the data folder), sizes and contents, wherever the data folder is.
//
// Every file is read once: its hash is kept in RESULTS/.hashes with its size, its inode and the time of its
// last change, and counts as long as these are the same. The file may be lost at any time. Listing and asking
// for sizes and times is what remains: about 0.1 s for 10,000 files on a local disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

class Inputs {
 public:
  // `say` is told before much is read.
  Inputs(std::filesystem::path results, std::string data_dir, std::function<void(const std::string&)> say);

  // {"data": {"files", "bytes", "fingerprint"}, "model" and "weights": the same}, without a part that the
  // run does not read. Throws Error (usage, data, spec) where something is missing or cannot be read.
  Json of(const RunSpec& run);
  // Keeps the hashes that were computed; a folder that cannot be written is no error.
  void keep() const;

 private:
  struct Stamp {
    uint64_t size = 0, inode = 0;
    int64_t time_ns = 0;
    bool operator==(const Stamp&) const = default;
  };
  struct Known {
    Stamp stamp;
    std::string hash;
  };

  static Stamp stamp_of(const std::string& file);
  void read_known();
  Json fingerprint(const std::filesystem::path& root, const std::vector<std::string>& files);
  void hash_unknown(const std::map<std::string, std::string>& files);

  std::filesystem::path cache_;
  std::string data_dir_;
  std::function<void(const std::string&)> say_;
  std::map<std::string, Known> known_;  // by name
  std::map<std::string, Json> asked_;   // what has been answered already
  bool changed_ = false;
};

// What the runs of an experiment read when they were last looked at, kept in RESULTS/EXPERIMENT/inputs.json,
// so that records can be compared with it where the data are not.
class LastInputs {
 public:
  explicit LastInputs(const std::filesystem::path& experiment_folder);
  void set(const RunSpec& run, const Json& inputs);
  Json of(const Json& spec) const;  // null if unknown
  void keep() const;                // makes the folder if needed; nothing is written where nothing changed

 private:
  std::filesystem::path file_;
  Json entries_ = Json::array();  // {"task", "init_from", "inputs"}
  bool changed_ = false;
};

}  // namespace bnlab
