#include "harness/error.hpp"
#include "harness/store/inputs.hpp"
#include "harness/store/run_folder.hpp"

namespace bnlab {
namespace {

// What decides which files a run reads.
bool reads_the_same(const Json& entry, const Json& spec) {
  for (const char* key : {"task", "init_from"}) {
    if ((entry.contains(key) ? entry[key] : Json()) != (spec.contains(key) ? spec[key] : Json())) {
      return false;
    }
  }
  return true;
}

}  // namespace

LastInputs::LastInputs(const std::filesystem::path& experiment_folder)
    : file_(experiment_folder / "inputs.json") {
  try {
    if (std::filesystem::exists(file_)) {
      entries_ = read_json(file_);
    }
  } catch (const Error&) {
    // It is made anew by the next run.
  }
  if (!entries_.is_array()) {
    entries_ = Json::array();
  }
}

void LastInputs::set(const RunSpec& run, const Json& inputs) {
  const Json& spec = run.resolved;
  for (Json& entry : entries_) {
    if (entry.is_object() && reads_the_same(entry, spec)) {
      changed_ = changed_ || entry["inputs"] != inputs;
      entry["inputs"] = inputs;
      return;
    }
  }
  if (!inputs.empty()) {
    entries_.push_back(
        {{"task", spec["task"]}, {"init_from", spec.value("init_from", Json())}, {"inputs", inputs}});
    changed_ = true;
  }
}

Json LastInputs::of(const Json& spec) const {
  for (const Json& entry : entries_) {
    if (entry.is_object() && reads_the_same(entry, spec)) {
      return entry.value("inputs", Json());
    }
  }
  return nullptr;
}

void LastInputs::keep() const {
  if (changed_) {
    std::filesystem::create_directories(file_.parent_path());
    write_json(file_, entries_);
  }
}

}  // namespace bnlab
