// Ranks that do not train: the task's option `behaviour` says what each of them does. This file stands in for
// harness/training in the tests of the launcher and of the program.
#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <utility>

#include "harness/communicator/gpus.hpp"
#include "harness/communicator/roll_call.hpp"
#include "harness/components/registry.hpp"
#include "harness/inference/diagnosis.hpp"
#include "harness/inference/folding.hpp"
#include "harness/inference/forward.hpp"
#include "harness/inference/trained_run.hpp"
#include "harness/layer/layer_program.hpp"
#include "harness/models/model_facts.hpp"
#include "harness/panel/measure.hpp"
#include "harness/probe/probe.hpp"
#include "harness/probe/profiled.hpp"
#include "harness/probe/steps.hpp"
#include "harness/probe/traced.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/strategy_facts.hpp"
#include "harness/support/activity.hpp"
#include "harness/support/error.hpp"
#include "harness/tasks/images/image_file.hpp"
#include "harness/tasks/images/listing.hpp"
#include "harness/tasks/task_facts.hpp"
#include "harness/training/libraries.hpp"
#include "harness/training/rank.hpp"
#include "harness/vectors/vectors.hpp"
#include "harness/verify/verify.hpp"

namespace bnlab {
namespace {

struct TaskOptions {
  std::string behaviour = "ok";

  void describe(OptionVisitor& option) {
    option("behaviour", behaviour, "what the last rank does")
        .one_of({"ok", "say", "refuse", "diverge", "exit", "kill", "stop", "stop on a GPU", "hang", "alone",
                 "linger", "leave the world", "lose work"});
  }
};

struct OnFilesOptions : TaskOptions {
  std::string root = "files";

  void describe(OptionVisitor& option) {
    TaskOptions::describe(option);
    option("root", root, "folder of the files");
  }

  Paths listed(const std::string& data_dir) const {
    if (data_dir.empty())
      throw Error(Error::Kind::usage, "task on_files: no data folder given; say --data DIR");
    Paths found;
    for (const auto& entry : std::filesystem::directory_iterator(data_dir + "/" + root))
      found.push_back(entry.path().string());
    return found;
  }
  Paths files(const std::string& data_dir) const {
    const Paths found = listed(data_dir);
    for (const std::string& file : found)
      if (file.ends_with("half")) throw FaultyData("half pairs", file + ": half");
    return found;
  }
};

// A file whose text is "bad" is a fault, and so is half a pair.
DataCheck data_check(const OnFilesOptions& options, const std::string& data_dir) {
  Paths files = options.listed(data_dir);
  return {"what is bad", [files] {
            DataReport report{{}, {"looked"}, 1};
            for (const std::string& file : files) {
              if (file.ends_with("half")) report.faults.push_back({"half pairs", file + ": half"});
              if (read_text(file) == "bad") report.faults.push_back({"bad files", file + ": bad"});
            }
            return report;
          }};
}

struct FolderOptions {
  std::string root;

  void describe(OptionVisitor& option) { option("root", root, "of the files").needed(); }
  Paths files(const std::string&) const { return {}; }
};

struct LeftOptions {
  double weight = 1;

  void describe(OptionVisitor& option) { option("weight", weight, "of nothing"); }
  void check(const RunOutline& run, Problems& problems) const {
    const size_t towers = run.samples_per_tower.size();
    if (towers > 0 && weight > static_cast<double>(towers))
      problems.add("weight", "is more than there are towers, " + std::to_string(towers));
  }
};

struct NoOptions {
  void describe(OptionVisitor&) {}
};

struct SgdOptions {
  double lr = 0.1;

  void describe(OptionVisitor& option) { option("lr", lr, "learning rate").above(0); }
};

[[maybe_unused]] const bool declared_here = [] {
  register_about("task",
                 with_options<TaskOptions>(TaskFacts{.name = "fake", .summary = "does what it is told"}));
  register_about(
      "task", with_options<OnFilesOptions>(TaskFacts{.name = "on_files", .summary = "the same, on files"}));
  register_about("task",
                 with_options<FolderOptions>(TaskFacts{.name = "files", .summary = "needs to be told more"}));
  register_about("model", with_options<NoOptions>(ModelFacts{.name = "fake", .summary = "no network"}));
  register_about("optimizer", with_options<SgdOptions>({.name = "sgd", .summary = "one optimizer"}));
  register_about("strategy",
                 with_options<LeftOptions>(StrategyFacts{.name = "left", .summary = "one strategy"}));
  register_about("strategy",
                 with_options<NoOptions>(StrategyFacts{"right", "another strategy", "a discussion",
                                                       /*formula=*/"y = x\ndx = dy",
                                                       /*exchanges=*/"1 forward",
                                                       /*use=*/"never", /*limits=*/"all | of it"}));
  return true;
}();

int listening_port(int fd) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  return getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 ? ntohs(address.sin_port) : 0;
}

int open_descriptors() {  // without the one through which they are counted
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count - 3;  // ".", ".." and the folder itself
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Json result_of(const RankJob& job) {
  const double lr = job.spec.optimizer.at("lr");  // the best of them is 0.1
  const Json metrics{
      {"mean_iou", 0.5 + 0.01 * static_cast<double>(job.spec.seed % 100) - std::abs(lr - 0.1)}};
  const auto images = 4 * job.spec.steps;
  return {{"steps", job.spec.steps},
          {"images", images},
          {"epochs", 1.0},
          {"headline", "mean_iou"},
          {"final", {{"saved", metrics}}},
          {"train_loss", std::nan("")},
          {"memory", {{"peak_rss_bytes", {1 << 20}}}},
          {"seen",
           {{"port", job.rendezvous.port},
            {"listening_port", listening_port(job.rendezvous.listen_fd)},
            {"open_descriptors", open_descriptors()},
            {"size", job.rendezvous.size},
            {"gpu_of_rank_0", job.rendezvous.local_rank},
            {"prefix", job.rendezvous.prefix},
            {"threads", job.threads},
            {"data_dir", job.data_dir},
            {"wait_policy", variable("OMP_WAIT_POLICY")},
            {"omp_threads", variable("OMP_NUM_THREADS")}}}};
}

[[noreturn]] void wait_for_ever() {
  for (;;) pause();
}

RankReport report(Status status, const std::string& message) {
  RankReport report;
  report.status = status;
  report.message = message;
  return report;
}

RankReport without_contact() {
  RankReport lost = report(Status::crashed, "all_gather: no answer within 60 s");
  lost.lost_contact = true;
  return lost;
}

void misbehave(const std::string& behaviour) {
  if (behaviour == "kill") {
    std::cout << "about to die" << std::endl;
    raise(SIGKILL);
  }
  if (behaviour == "stop" || behaviour == "stop on a GPU") {
    Activity::begin_step(15);
    Activity::begin_part(ActivityPart::backward);
    raise(SIGSTOP);
    wait_for_ever();
  }
  if (behaviour == "exit") {
    std::cout << "a library gave up" << std::endl;
    _exit(7);
  }
}

}  // namespace

void shutdown(KeptWorld& kept) {
  kept.rendezvous.prefix.clear();
}

// A kept world is one whose rendezvous has a prefix.
RankReport run_rank(const RankJob& job, KeptWorld* kept) {
  const bool in_kept_world = kept != nullptr && !std::exchange(kept->rendezvous.prefix, "").empty();
  const int rank = job.rendezvous.rank;
  std::ofstream(job.run_dir + "/pid" + std::to_string(rank)) << getpid() << std::endl;
  if (rank == 0) {
    std::ofstream(job.run_dir + "/metrics.jsonl")
        << R"({"kind": "train", "step": 1, "epoch": 0.1, "loss": 2.5})" << std::endl;
  }
  const auto behaviour = job.spec.task.at("behaviour").get<std::string>();
  if (behaviour == "linger") usleep(200'000);
  if (behaviour == "say") std::cout << "seed " << job.spec.seed << std::endl;
  if (behaviour == "alone") {
    RankReport nobody = without_contact();
    nobody.world_formed = false;
    return nobody;
  }
  const bool last = rank == job.rendezvous.size - 1;
  if (behaviour == "hang") wait_for_ever();
  if (behaviour == "stop on a GPU" && !last) {
    std::cerr << "[rank0] Watchdog caught collective operation timeout: ALLREDUCE ran for 60000 ms"
              << std::endl;
    std::abort();  // as NCCL's watchdog does
  }
  if (behaviour == "kill" || behaviour.rfind("stop", 0) == 0 || behaviour == "exit") {
    if (!last) {
      try {
        Activity::begin_step(16);
        const Activity::AtSite site("decoder1.norm2", "forward");
        const Activity::InCollective collective("all_gather", "statistics", 40);
        throw Error(Error::Kind::communication, "lost contact");
      } catch (const Error&) {
        return without_contact();
      }
    }
    misbehave(behaviour);
  }
  if (behaviour == "refuse") return report(Status::error, "this strategy refuses");
  RankReport done = report(behaviour == "diverge" ? Status::diverged : Status::ok,
                           behaviour == "diverge" ? "the loss is not finite at step 3" : "");
  if (rank == 0) {
    done.result = result_of(job);
    done.result["seen"]["in_kept_world"] = in_kept_world;
    if (behaviour == "lose work") {
      done.lost_work = {"the work of 20 steps was lost"};
      done.notes = {done.lost_work[0], "another note"};
    }
  }
  if (kept != nullptr) {
    kept->rendezvous = job.rendezvous;
    kept->is_kept = behaviour != "leave the world";
  }
  return done;
}

std::string share_text(const Rendezvous& rendezvous, const std::string& text_of_rank0) {
  // One process plays rank 0 or another rank of a world; what rank 0 shares goes through a file of the test.
  if (rendezvous.size == 1) return text_of_rank0;
  std::string file = variable("FAKE_STORE") + rendezvous.prefix;
  std::replace(file.begin() + static_cast<std::ptrdiff_t>(variable("FAKE_STORE").size()), file.end(), '/',
               '_');
  if (rendezvous.rank == 0) {
    std::ofstream(file) << text_of_rank0;
    return text_of_rank0;
  }
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

class RollCall::Answering {};

RollCall::RollCall(const Rendezvous& at, std::function<std::string()> answer)
    : at_(at), answer_(std::move(answer)) {}
RollCall::~RollCall() = default;

// Nobody answers but the last rank.
std::vector<std::string> RollCall::call(std::chrono::milliseconds /*patience*/) {
  std::vector<std::string> answers(static_cast<size_t>(at_.size));
  answers.back() = answer_();
  return answers;
}

void RollCall::wait(std::chrono::milliseconds /*patience*/) const {}

// The other ranks see what this one does, or with FAKE_OWN_GPUS each a GPU of its own.
std::vector<std::string> gather_texts(const Rendezvous& rendezvous, const std::string& own) {
  std::vector<std::string> texts(static_cast<size_t>(rendezvous.size), own);
  for (int rank = 0; !variable("FAKE_OWN_GPUS").empty() && rank < rendezvous.size; ++rank)
    texts[static_cast<size_t>(rank)] = Json::array({std::to_string(rank)}).dump();
  return texts;
}

// A probe without measurements: what it was asked for.
Json run_probe(const ProbeRequest& request, const Rendezvous& rendezvous) {
  return rendezvous.rank == 0 ? Json{{"schema", kProbeSchema},
                                     {"fabric",
                                      {{"device", name_of(request.device)},
                                       {"ranks", rendezvous.size},
                                       {"nodes", request.nodes},
                                       {"threads_per_rank", request.threads}}},
                                     {"kernels", nullptr},
                                     {"collectives", Json::array()},
                                     {"routes", Json::array()},
                                     {"steps", Json::array()}}
                              : Json();
}

std::vector<RunSpec> runs_to_measure(const std::vector<RunSpec>& runs, int) {
  return runs;
}

// Of the strategy `right` a step exchanges 20 times 1 KB.
Json counted_step(const RunSpec& run, int ranks, const std::string&, bool) {
  Json exchanges = {{{"op", "all_reduce"}, {"purpose", "gradients"}, {"bytes", 1 << 20}, {"count", 1}}};
  if (run.strategy.at("name") == "right")
    exchanges.push_back({{"op", "all_reduce"}, {"purpose", "statistics"}, {"bytes", 1024}, {"count", 20}});
  return {{"run", run.id},
          {"strategy", label(run.strategy)},
          {"model", label(run.model, "model")},
          {"ranks", ranks},
          {"images_per_rank", 2},
          {"exchanges", exchanges}};
}

std::string kind_of_exchanges(const RunSpec&, int) {
  return "";
}

// A step of 10 ms.
Json own_step(const RunSpec& run, int ranks, Device, const std::string& data_dir, double) {
  Json step = counted_step(run, ranks, data_dir, false);
  step.update({{"own_s", {{"p10", 9e-3}, {"mean", 10e-3}, {"p90", 11e-3}}},
               {"parts_s", {{"backward", 6e-3}}},
               {"peak_memory_bytes", 1 << 20}});
  return step;
}

void prepare_to_measure(int) {}

std::vector<std::vector<ActivityEvent>> traced_steps(const RunSpec&, const Rendezvous& rendezvous, bool,
                                                     const std::string&, int64_t, int64_t) {
  return std::vector<std::vector<ActivityEvent>>(static_cast<size_t>(rendezvous.size));
}

// A step of 10 ms, of which the GPU idles 2, and NCCL runs 4, a quarter of them alone.
std::vector<Json> profiled_steps(const RunSpec&, const Rendezvous&, Device, const std::string&, int64_t,
                                 int64_t, const std::string&) {
  const Json work = {
      {{"name", "void (anonymous namespace)::rows<float>(int)"}, {"own_s", 7e-3}, {"count", 60.5}},
      {{"name", "ncclDevKernel"}, {"own_s", 4e-3}, {"count", 2}}};
  return {{{"step_s", 1e-2}, {"idle_s", 2e-3}, {"nccl_s", 4e-3}, {"nccl_alone_s", 1e-3}, {"work", work}}};
}

// Answers with what it was asked; the strategy "right" has no running statistics.
Json evaluate_weights(const EvaluateJob& job) {
  if (job.spec.towers() % job.ranks != 0)
    throw Error(Error::Kind::refused, "towers: the ranks must divide them");
  Json all = Json::object();
  for (const std::string& population : job.populations) {
    const bool none = job.spec.strategy.at("name") == "right";
    all[none ? "saved" : population] = {{"mean_iou", 0.5}, {"class_iou", {0.5, job.ranks}}};
  }
  return all;
}

// One row of two pixels per sample, all of the class that is the sample's number; the images are the seed's.
std::vector<Prediction> predict(const EvaluateJob& job, const std::vector<int64_t>& samples, int64_t count) {
  std::vector<Prediction> all;
  for (int64_t i = 0; i < (samples.empty() ? count : static_cast<int64_t>(samples.size())); ++i) {
    const int64_t sample = samples.empty() ? i : samples[static_cast<size_t>(i)];
    const auto id = static_cast<uint8_t>(sample);
    const std::vector<uint8_t> image(6, static_cast<uint8_t>(100 + job.spec.seed));
    all.push_back({sample, 1, 2, image, {id, kVoidId}, {id, id}});
  }
  return all;
}

Folded write_folded(const EvaluateJob& job, const std::string& out) {
  std::ofstream(out) << job.weights;
  return {.norms = 3, .classes = 7, .difference = 2e-7};
}

LabelFile read_label_file(const std::string& file) {
  throw Error(Error::Kind::data, file + ": nothing is read here");
}

std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    files.push_back(entry.path());
  return files;
}

std::array<uint8_t, 3> class_colour(uint8_t id) {
  return {id, id, id};
}

void write_png(const std::string& file, const Pixels& pixels) {
  std::ofstream out(file);
  for (const uint8_t value : pixels.values) out << int{value} << " ";
}

std::string run_forward_pass(const ForwardRequest& request) {
  std::ofstream(request.out) << request.model << " " << request.strategy << " " << request.classes << " "
                             << name_of(request.mode);
  return "used " + request.weights;
}

bool answer_layer_cases(const LayerRequest& request, std::ostream& out, std::ostream&) {
  for (const std::string& file : request.files)
    out << file << " on " << request.ranks << " x " << request.device << "\n";
  return request.files.front() != "refused.json";
}

// Every variant of the strategy "wrong" fails, and "fatal" ends the program.
VerifyReport verify(const VerifyRequest& request) {
  VerifyReport report{{{"cpu", 1}}, {}, {}};
  for (const std::string& strategy : request.strategies) {
    request.progress(strategy, 0, request.strategies.size());
    if (strategy == "fatal") raise(SIGFPE);
    report.rows.push_back({strategy, Json::object(), 1, 0, {}, strategy == "wrong" ? "its output" : ""});
  }
  return report;
}

WrittenVectors write_vectors(const std::string& folder) {
  return {2, static_cast<int64_t>(folder.size())};
}

bool VerifyReport::passed() const {
  return std::all_of(rows.begin(), rows.end(), [](const VerifyRow& row) { return row.passed(); });
}

// Evaluates best with the moments of the batch itself.
DiagnosisNumbers diagnosis_numbers(const EvaluateJob&) {
  DiagnosisNumbers numbers;
  numbers.metric = "mean_iou";
  numbers.training = 0.625;
  numbers.saved = 0.25;
  numbers.precise = 0.25;
  numbers.batch = 0.5;
  return numbers;
}

Diagnosis diagnosis_of(const DiagnosisNumbers& numbers, double margin) {
  const bool small = *numbers.batch - numbers.saved > margin;
  return {small ? std::vector{Cause::small_batch} : std::vector<Cause>(), small ? "A small batch." : "None."};
}

// Every entry computes what is committed but the one that FAKE_PANEL names.
std::optional<Json> measure(const PanelEntry& entry, std::string&) {
  Json values = committed_panel().at(entry.name).at("values");
  if (variable("FAKE_PANEL") == entry.name) values["weights"] = 1e9;
  return values;
}

Json library_versions() {
  return {{"libtorch", "0.0.0"}, {"cuda", nullptr}, {"nccl", nullptr}, {"gpus", Json::array()}};
}

bool built_with_cuda() {
  return variable("FAKE_CUDA") != "off";
}

int visible_gpus() {
  return std::atoi(variable("FAKE_GPUS").c_str());
}

std::vector<std::string> names_of_gpus() {
  std::vector<std::string> names;
  for (int gpu = 0; gpu < visible_gpus(); ++gpu) names.push_back("GPU " + std::to_string(gpu));
  return names;
}

}  // namespace bnlab
