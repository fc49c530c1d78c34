#include "harness/training/checkpoint.hpp"

#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "harness/communicator/shared_text.hpp"
#include "harness/error.hpp"
#include "harness/records/attempts.hpp"
#include "harness/records/code_version.hpp"
#include "harness/records/run_folder.hpp"
#include "harness/training/held_state.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKept = 2;
constexpr const char* kMetadata = "checkpoint";  // in the header: {"run", "ranks", "values"}

std::string hash_of(const std::string& bytes) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return digits;
}

std::string file_name(int64_t step, const std::string& bytes) {
  return "step" + std::to_string(step) + "-" + hash_of(bytes) + ".safetensors";
}

// The step in a checkpoint's name; -1 for other files.
int64_t step_of(const fs::path& file) {
  const std::string name = file.filename();
  int64_t step = -1;
  if (name.starts_with("step") && name.ends_with(".safetensors")) {
    std::from_chars(name.data() + 4, name.data() + name.size(), step);
  }
  return step;
}

// In messages, of which records keep some: without the place of the results.
std::string in_its_folder(const fs::path& file) {
  return std::string(kCheckpointsFolder) + "/" + file.filename().string();
}

// Nothing where the bytes are not those that were written.
std::string read_whole(const fs::path& file) {
  try {
    std::string bytes = read_text(file);
    return file.filename() == file_name(step_of(file), bytes) ? bytes : "";
  } catch (const Error&) {
    return "";
  }
}

// The newest first, and behind them what else lies there.
std::vector<fs::path> files_in(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files, [](const fs::path& a, const fs::path& b) { return step_of(a) > step_of(b); });
  return files;
}

// "spec.optimizer.lr is 0.1 there and 0.2 here"
std::string differences(const Json& there, const Json& here) {
  const Json before = there.flatten(), now = here.flatten();
  std::string all;
  const auto add = [&](const std::string& pointer) {
    std::string key = pointer.substr(1);
    std::ranges::replace(key, '/', '.');
    const auto text = [&](const Json& values) {
      return values.contains(pointer) ? values.at(pointer).dump() : "absent";
    };
    all += (all.empty() ? "" : ", ") + key + " is " + text(before) + " there and " + text(now) + " here";
  };
  for (const auto& [pointer, value] : now.items()) {
    if (!before.contains(pointer) || before.at(pointer) != value) {
      add(pointer);
    }
  }
  for (const auto& entry : before.items()) {
    if (!now.contains(entry.key())) {
      add(entry.key());
    }
  }
  return all;
}

Json identity(const RunSpec& spec, const Json& inputs) {
  Json deciding = spec.resolved;
  for (const auto& [key, value] : spec.resolved.items()) {
    if (!changes_result(key)) {
      deciding.erase(key);
    }
  }
  const Json code = code_version(spec.resolved, "cuda");  // the device may change meanwhile
  return {{"spec", deciding}, {"inputs", inputs}, {"fingerprint", code.at("fingerprint")}};
}

}  // namespace

Checkpoints::Checkpoints(const RunSpec& spec, const Json& inputs, const std::string& run_dir, World& world)
    : run_(identity(spec, inputs)),
      every_(spec.checkpoint_every),
      replicas_(spec.average_weights_every > 0),
      run_dir_(run_dir),
      folder_(run_dir + "/" + kCheckpointsFolder),
      world_(world) {
  std::string bytes;
  Json verdict = {{"refusal", nullptr}, {"notes", Json::array()}, {"found", false}};
  if (world.rank() == 0) {
    try {
      bytes = newest(run_dir);
    } catch (const Error& error) {
      verdict["refusal"] = error.what();
    }
    verdict["notes"] = notes_;
    verdict["found"] = !bytes.empty();
  }
  verdict = Json::parse(text_of_rank0(verdict.dump(), world.device(), world.gradients()));
  if (!verdict.at("refusal").is_null()) {
    throw Error(Error::Kind::refused, verdict.at("refusal"));
  }
  notes_ = verdict.at("notes").get<std::vector<std::string>>();
  if (verdict.at("found").get<bool>()) {  // larger than a device may hold
    found_ = parse_safetensors(text_of_rank0(bytes, at::kCPU, world.host()), folder_);
  }
}

std::string Checkpoints::newest(const std::string& run_dir) {
  std::error_code none;
  const auto logged = fs::file_size(run_dir + "/" + kMetricsFile, none);
  for (const fs::path& file : files_in(folder_)) {
    if (step_of(file) < 0) {
      continue;
    }
    std::string bytes = read_whole(file);
    if (bytes.empty()) {
      notes_.push_back(in_its_folder(file) + " is damaged and was not used");
      continue;
    }
    const Json metadata = Json::parse(parse_safetensors(bytes, file.string()).metadata.at(kMetadata));
    if (const std::string differing = differences(metadata.at("run"), run_); !differing.empty()) {
      throw Error(Error::Kind::refused,
                  in_its_folder(file) + " belongs to another run: " + differing +
                      "; go on with those, or start from the beginning with --redo and the id of the run");
    }
    if (none || logged < metadata.at("values").at("metrics.bytes").get<uint64_t>()) {
      notes_.push_back(in_its_folder(file) + " was not used: " + kMetricsFile + " lacks the lines before it");
      continue;
    }
    return bytes;
  }
  if (!notes_.empty()) {
    notes_.push_back("no checkpoint could be used: the run started from the beginning");
  }
  return "";
}

void Checkpoints::restore(const Describe& describe) {
  const Json metadata = Json::parse(found_->metadata.at(kMetadata));
  GivenState state({std::move(found_->tensors), metadata.at("values"), metadata.at("ranks")}, replicas_,
                   world_);
  found_.reset();
  describe(state);
}

void Checkpoints::save(int64_t steps_done, const Describe& describe) {
  TakenState state(replicas_);
  describe(state);
  const Held held = state.gathered(world_.host());
  if (world_.rank() != 0) {
    return;
  }
  const Json metadata = {{"run", run_}, {"ranks", held.ranks}, {"values", held.values}};
  const std::string bytes = safetensors_bytes(held.tensors, {{kMetadata, metadata.dump()}});
  const std::string name = file_name(steps_done, bytes);
  make_folder(folder_);
  write_atomically(folder_ + "/" + name, bytes);
  if (attempts_without_end(run_dir_) > 1) {
    set_attempts(run_dir_, 1);  // this one has come further than those before
  }
  size_t kept = 0;
  for (const fs::path& file : files_in(folder_)) {
    const bool newer = step_of(file) > steps_done;  // of a future that this run has not taken
    if (newer || step_of(file) < 0 || ++kept > kKept) {
      fs::remove(file);
    }
  }
}

}  // namespace bnlab
