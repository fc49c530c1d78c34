#include "harness/training/checkpoint.hpp"

#include <torch/types.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <utility>

#include "harness/communicator/shared_text.hpp"
#include "harness/experiment/fingerprint.hpp"
#include "harness/numerics/panel.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/differences.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr size_t kKept = 2;
constexpr int kFormat = 2;  // names and layout of the state: another one cannot be read
constexpr const char* kDescription = "checkpoint";  // in the header's metadata: {"run", "ranks", "values"}

std::string file_name(int64_t step, const std::string& digits) {
  return "step" + std::to_string(step) + "-" + digits + ".safetensors";
}

// The step in a checkpoint's name; -1 for other files.
int64_t step_of(const fs::path& file) {
  const std::string name = file.filename();
  int64_t step = -1;
  if (name.starts_with("step") && name.ends_with(".safetensors"))
    std::from_chars(name.data() + 4, name.data() + name.size(), step);
  return step;
}

// In messages, of which records keep some: without the place of the results.
std::string in_its_folder(const fs::path& file) {
  return std::string(kCheckpointsFolder) + "/" + file.filename().string();
}

// Whether the bytes of the file are those that were written.
bool is_whole(const fs::path& file) try {
  return file.filename() == file_name(step_of(file), fingerprint_of_file(file.string()));
} catch (const Error&) {  // it cannot be read
  return false;
}

// The newest first, and behind them what else lies there.
std::vector<fs::path> files_in(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) files.push_back(entry.path());
  std::ranges::sort(files, [](const fs::path& a, const fs::path& b) { return step_of(a) > step_of(b); });
  return files;
}

// What a checkpoint was made by, with the parts of the panel alone that `today` names too.
Json as_named_today(Json run, const Json& today) {
  if (run.contains("numerics") && same_numerics(run["numerics"], today.at("numerics")))
    run["numerics"] = today.at("numerics");
  return run;
}

Json identity(const RunSpec& spec, const Json& inputs) {
  Json deciding = spec.resolved;
  for (const auto& [key, value] : spec.resolved.items())
    if (!changes_result(key)) deciding.erase(key);
  const Json numerics = numerics_of(spec.resolved, "cuda");  // the device may change meanwhile
  return {{"format", kFormat}, {"spec", deciding}, {"inputs", inputs}, {"numerics", numerics}};
}

// The state of all ranks, as a checkpoint holds it.
struct Snapshot {
  std::vector<NamedTensor> tensors;  // [ranks, ...shape] where the ranks' own differ
  Json values = Json::object();      // by name
  int ranks = 1;
};

// `replicas`: the ranks train apart (average_weights_every), so that no tensor is the same on all of them.
Across effective(Across ranks, bool replicas) {
  return ranks == Across::same && replicas ? Across::own : ranks;
}

at::Tensor as_bytes(const at::Tensor& tensor) {
  return tensor.reshape(-1).view(at::kByte);
}

// Takes what is described.
class SavedState : public State {
 public:
  explicit SavedState(bool replicas) : replicas_(replicas) {}

  void tensor(const std::string& name, const at::Tensor& tensor, Across ranks) override {
    const bool same = effective(ranks, replicas_) == Across::same;
    (same ? same_ : apart_).push_back({name, tensor.detach().cpu().contiguous()});
  }
  void json(const std::string& name, Json& value) override { values_[name] = value; }
  bool goes_on() const override { return false; }
  bool same_ranks() const override { return true; }

  // What was described, complete on rank 0. Called by every rank; `host` takes CPU tensors.
  Snapshot gathered(Communicator& host) const;

 private:
  bool replicas_;
  std::vector<NamedTensor> same_, apart_;
  Json values_ = Json::object();
};

// One exchange of bytes serves all tensors that differ.
Snapshot SavedState::gathered(Communicator& host) const {
  std::vector<at::Tensor> pieces;
  for (const NamedTensor& t : apart_) pieces.push_back(as_bytes(t.tensor));
  Snapshot all{same_, values_, host.size()};
  if (pieces.empty()) return all;
  const at::Tensor bytes = host.gather(at::cat(pieces), 0, Purpose::control);  // [ranks, bytes]
  int64_t begin = 0;
  for (size_t i = 0; i < apart_.size() && host.rank() == 0; ++i) {
    const at::Tensor& own = apart_[i].tensor;
    std::vector<int64_t> shape = own.sizes().vec();
    shape.insert(shape.begin(), host.size());
    const at::Tensor of_ranks = bytes.narrow(1, begin, pieces[i].numel()).clone(at::MemoryFormat::Contiguous);
    all.tensors.push_back({apart_[i].name, of_ranks.view(-1).view(own.scalar_type()).view(shape)});
    begin += pieces[i].numel();
  }
  return all;
}

// Puts back what a checkpoint holds, one tensor after the other: rank 0 reads it and sends each rank what it
// needs of it. What the checkpoint holds beyond what is described stays unread.
class RestoredState : public State {
 public:
  using Entry = SafeTensorsHeader::Entry;

  // `file` is rank 0's, null elsewhere.
  RestoredState(const SafeTensorsHeader& header, SafeTensorsFile* file, bool replicas, World& world)
      : description_(Json::parse(header.metadata.at(kDescription))),
        ranks_(description_.at("ranks")),
        file_(file),
        replicas_(replicas),
        world_(world) {
    for (const Entry& entry : header.tensors) entries_.emplace(entry.name, entry);
  }

  // Throws Error: data where the tensor is lacking or does not fit, refused where other ranks cannot go on
  // with it.
  void tensor(const std::string& name, const at::Tensor& tensor, Across ranks) override;
  void json(const std::string& name, Json& value) override { value = description_.at("values").at(name); }
  bool goes_on() const override { return true; }
  bool same_ranks() const override { return ranks_ == world_.size(); }

 private:
  at::Tensor received(const Entry& entry, Across ranks, at::IntArrayRef shape);
  at::Tensor broadcast(const at::Tensor& of_rank0, at::ScalarType type, at::IntArrayRef shape);
  at::Tensor scattered(const at::Tensor& rows_of_rank0, at::ScalarType type, at::IntArrayRef shape);

  Json description_;
  int ranks_;  // those that left the checkpoint
  std::map<std::string, Entry> entries_;
  SafeTensorsFile* file_;
  bool replicas_;
  World& world_;
};

void RestoredState::tensor(const std::string& name, const at::Tensor& tensor, Across ranks) {
  const at::NoGradGuard no_grad;
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw Error(Error::Kind::data, "the checkpoint lacks " + name);
  ranks = effective(ranks, replicas_);
  if (ranks == Across::own && !same_ranks()) {
    throw Error(Error::Kind::refused, "the ranks of this run differ in " + name + ": it goes on with " +
                                          std::to_string(ranks_) + " ranks only");
  }
  std::vector<int64_t> expected = tensor.sizes().vec();
  if (ranks == Across::towers && !expected.empty())  // those ranks may have had more towers, or fewer
    expected.front() = expected.front() * world_.size() / ranks_;
  if (ranks != Across::same) expected.insert(expected.begin(), ranks_);
  if (found->second.shape != expected || found->second.dtype != tensor.scalar_type())
    throw Error(Error::Kind::data, "the checkpoint holds " + name + " of another shape or type");
  if (tensor.numel() > 0) tensor.copy_(received(found->second, ranks, tensor.sizes()));
}

// This rank's part of a tensor, [...shape].
at::Tensor RestoredState::received(const Entry& entry, Across ranks, at::IntArrayRef shape) {
  const at::Tensor held = world_.rank() == 0 ? file_->read(entry) : at::Tensor();
  if (ranks == Across::same) return broadcast(held, entry.dtype, shape);
  if (same_ranks() || ranks == Across::towers)  // towers are dealt to ranks in order
    return scattered(held, entry.dtype, shape);
  if (ranks == Across::sum)
    return world_.rank() == 0 ? held.sum(0, false, entry.dtype) : at::zeros(shape, entry.dtype);
  return broadcast(held.defined() ? held.mean(0) : held, entry.dtype, shape);
}

at::Tensor RestoredState::broadcast(const at::Tensor& of_rank0, at::ScalarType type, at::IntArrayRef shape) {
  at::Tensor all = of_rank0.defined() ? of_rank0 : at::empty(shape, type);
  at::Tensor bytes = as_bytes(all);  // the same memory
  world_.host().broadcast(bytes, 0, Purpose::control);
  return all;
}

// Row r of `rows_of_rank0`, [ranks, ...shape], on rank r.
at::Tensor RestoredState::scattered(const at::Tensor& rows_of_rank0, at::ScalarType type,
                                    at::IntArrayRef shape) {
  const auto size = static_cast<size_t>(world_.size());
  const int64_t row = c10::multiply_integers(shape) * static_cast<int64_t>(c10::elementSize(type));
  std::vector<int64_t> send(size, world_.rank() == 0 ? 1 : 0), receive(size, 0);
  receive.front() = 1;
  const at::Tensor rows =
      rows_of_rank0.defined() ? as_bytes(rows_of_rank0).view({-1, row}) : at::empty({0, row}, at::kByte);
  return world_.host().all_to_all(rows, send, receive, Purpose::control).view(-1).view(type).view(shape);
}

}  // namespace

Checkpoints::Checkpoints(const RunSpec& spec, const Json& inputs, const std::string& run_dir, World& world)
    : run_(identity(spec, inputs)),
      every_(spec.checkpoint_every),
      replicas_(spec.average_weights_every > 0),
      run_dir_(run_dir),
      folder_(run_dir + "/" + kCheckpointsFolder),
      world_(world) {
  Json verdict = {{"refusal", nullptr}, {"notes", Json::array()}, {"header", nullptr}, {"data_bytes", 0}};
  if (world.rank() == 0) {
    try {
      file_ = newest(run_dir);
    } catch (const Error& error) {
      verdict["refusal"] = error.what();
    }
    verdict["notes"] = notes_;
    if (file_) {
      verdict["header"] = file_->header_text();
      verdict["data_bytes"] = file_->data_bytes();
    }
  }
  verdict = Json::parse(text_of_rank0(verdict.dump(), world.device(), world.gradients()));
  if (!verdict.at("refusal").is_null()) throw Error(Error::Kind::refused, verdict.at("refusal"));
  notes_ = verdict.at("notes").get<std::vector<std::string>>();
  if (!verdict.at("header").is_null())
    header_ = parse_safetensors_header(verdict.at("header"), verdict.at("data_bytes"), folder_);
}

std::unique_ptr<SafeTensorsFile> Checkpoints::newest(const std::string& run_dir) {
  std::error_code none;
  const auto logged = fs::file_size(run_dir + "/" + kMetricsFile, none);
  for (const fs::path& file : files_in(folder_)) {
    if (step_of(file) < 0) continue;
    if (!is_whole(file)) {
      notes_.push_back(in_its_folder(file) + " is damaged and was not used");
      continue;
    }
    auto open = std::make_unique<SafeTensorsFile>(file.string());
    const Json description = Json::parse(open->header().metadata.at(kDescription));
    const std::string differing =
        differences(as_named_today(description.at("run"), run_), run_, " there", " here");
    if (!differing.empty()) {
      throw Error(Error::Kind::refused,
                  in_its_folder(file) + " belongs to another run: " + differing +
                      "; go on with those, or start from the beginning with --redo and the id of the run");
    }
    if (none || logged < description.at("values").at("metrics.bytes").get<uint64_t>()) {
      notes_.push_back(in_its_folder(file) + " was not used: " + kMetricsFile + " lacks the lines before it");
      continue;
    }
    return open;
  }
  if (!notes_.empty()) notes_.push_back("no checkpoint could be used: the run started from the beginning");
  return nullptr;
}

void Checkpoints::restore(const Describe& describe) {
  RestoredState state(*header_, file_.get(), replicas_, world_);
  describe(state);
  header_.reset();
  file_.reset();
}

void Checkpoints::save(int64_t steps_done, const Describe& describe) {
  SavedState state(replicas_);
  describe(state);
  const Snapshot all = state.gathered(world_.host());
  if (world_.rank() != 0) return;
  const Json description = {{"run", run_}, {"ranks", all.ranks}, {"values", all.values}};
  const std::string bytes = safetensors_bytes(all.tensors, {{kDescription, description.dump()}});
  const std::string name = file_name(steps_done, fingerprint(bytes));
  make_folder(folder_);
  write_atomically(folder_ + "/" + name, bytes);
  if (attempts_without_end(run_dir_) > 0)
    set_attempts(run_dir_, 1);  // this one has come further than those before
  size_t kept = 0;
  for (const fs::path& file : files_in(folder_)) {
    const bool newer = step_of(file) > steps_done;  // a future that this run has not taken
    if (newer || step_of(file) < 0 || ++kept > kKept) fs::remove(file);
  }
}

}  // namespace bnlab
