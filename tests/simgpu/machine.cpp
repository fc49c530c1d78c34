#include "tests/simgpu/machine.hpp"

#include <execinfo.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>

namespace simgpu {
namespace {

constexpr useconds_t kPoll = 50;    // microseconds
constexpr double kTellAfter = 60;   // seconds without any progress
constexpr int kDeepestWait = 1000;  // of streams for each other
constexpr double kIdleBeforeBackground = 0.02, kLazyIdleBeforeBackground = 0.5;  // seconds

thread_local cudaError_t error_now = cudaSuccess;
std::atomic<bool> broken = false;

// The devices that the process sees of those that are there. CUDA reads CUDA_VISIBLE_DEVICES up to the first
// entry that names none.
std::vector<int> visible_devices(int there) {
  std::vector<int> devices;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  for (int device = 0; visible == nullptr && device < there; ++device) devices.push_back(device);
  std::stringstream list(visible != nullptr ? visible : "");
  for (std::string one; std::getline(list, one, ',');) {
    char* end = nullptr;
    const long index = std::strtol(one.c_str(), &end, 10);
    if (end == one.c_str() || index < 0 || index >= there) break;
    devices.push_back(static_cast<int>(index));
  }
  return devices;
}

// What the process has given to its streams, as JSON in the folder SIMGPU_COUNTS, in a file for each process.
void write_counts() {
  const char* folder = std::getenv("SIMGPU_COUNTS");
  if (folder == nullptr) return;
  Machine& m = machine();
  std::ofstream file(std::string(folder) + "/" + std::to_string(getpid()) + ".json");
  const auto of = [&](Sort sort) { return m.given[static_cast<size_t>(sort)].load(); };
  file << "{\"kernels\": " << of(Sort::kernel) << ", \"copies\": " << of(Sort::copy)
       << ", \"sets\": " << of(Sort::set) << ", \"collectives\": " << of(Sort::collective)
       << ", \"graphs\": " << of(Sort::graph) << ", \"host_waits\": " << m.host_waits << "}\n";
}

void print_backtrace() {
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), 2);
}

// One step of the stream's first piece of work, if it may be made. True if that has ended.
bool try_step(StreamState* stream, Lock& lock) {
  if (stream->busy || stream->queue.empty()) return false;
  Work& work = stream->queue.front();
  for (const MarkerPtr& wait : work.waits)
    if (!wait->done) return false;
  if (work.make || work.step) {
    stream->busy = true;
    lock.unlock();
    bool ended = false;
    const int device = std::exchange(current_device, stream->device);
    try {
      const Acting acting(work.actor);
      if (!work.step) work.step = begun(work.make, work.actor, work.accesses);
      ended = work.step();
    } catch (const std::exception& error) {
      die("work on a stream failed (" + work.name + "): " + error.what());
    }
    current_device = device;
    if (machine().trace && ended)
      std::fprintf(stderr, "simgpu %d: stream %lu did %s\n", getpid(), stream->id, work.name.c_str());
    lock.lock();
    stream->busy = false;
    if (!ended) return false;
  }
  work.end->time = now();
  work.end->done = true;
  stream->queue.pop_front();
  return true;
}

bool lazy_step(StreamState* stream, Lock& lock, int depth = 0) {
  if (stream->queue.empty() || depth > kDeepestWait) return false;
  for (const MarkerPtr& wait : stream->queue.front().waits)
    if (!wait->done && wait->stream != nullptr && wait->stream != stream)
      return lazy_step(wait->stream, lock, depth + 1);
  return try_step(stream, lock);
}

bool random_step(Lock& lock) {
  Machine& m = machine();
  std::vector<StreamState*> order;
  for (StreamState* stream : m.streams)
    if (!stream->queue.empty() && !stream->busy) order.push_back(stream);
  if (order.empty()) return false;
  if (m.random() % 40 == 0)
    for (StreamState* stream : order) stream->favour = static_cast<double>(m.random() % 1000);
  std::stable_sort(order.begin(), order.end(),
                   [](const StreamState* a, const StreamState* b) { return a->favour > b->favour; });
  if (m.random() % 5 == 0) std::shuffle(order.begin(), order.end(), m.random);
  return std::any_of(order.begin(), order.end(), [&](StreamState* stream) { return try_step(stream, lock); });
}

bool step_towards(const MarkerPtr& target, Lock& lock) {
  if (machine().lazy && target->stream != nullptr && lazy_step(target->stream, lock)) return true;
  return random_step(lock);
}

// A GPU goes on while the host does other things.
void go_on_in_background() {
  Machine& m = machine();
  if (m.in_background || !m.late) return;
  m.in_background = true;
  std::thread([&m] {
    for (;;) {
      usleep(2000);
      if (now() - m.last_call > (m.lazy ? kLazyIdleBeforeBackground : kIdleBeforeBackground)) {
        Lock lock(m.mutex);
        for (int i = 0; i < 20 && random_step(lock); ++i) {
        }
      }
    }
  }).detach();
}

void record(StreamState* stream, Sort sort, std::string name, Maker make, std::vector<Access> accesses,
            const void* chain) {
  Capture& capture = *stream->capture;
  std::vector<int> after = stream->last;
  const int index = static_cast<int>(capture.graph->nodes.size());
  if (chain != nullptr) {
    const auto [before, first] = capture.chains.try_emplace(chain, index);
    if (!first) after.push_back(std::exchange(before->second, index));
  }
  std::vector<StreamState*>& lanes = capture.graph->lanes;
  const auto own = std::ranges::find(lanes, stream);
  const auto lane = static_cast<size_t>(own - lanes.begin());
  if (own == lanes.end()) lanes.push_back(stream);
  Clock clock(lane + 1);
  for (int before : after) join(clock, capture.graph->nodes[static_cast<size_t>(before)].clock);
  ++clock[lane];
  capture.graph->nodes.push_back({sort, std::move(name), std::move(after), std::move(make),
                                  std::move(accesses), lane, std::move(clock)});
  stream->last = {index};
}

}  // namespace

Machine::Machine()
    : late(std::string(setting("SIMGPU_MODE", "eager")) == "late"),
      lazy(std::string(setting("SIMGPU_SCHEDULE", "starve")) == "lazy"),
      progress(std::atof(setting("SIMGPU_PROGRESS", lazy ? "0" : "0.2"))),
      verbose(std::getenv("SIMGPU_VERBOSE") != nullptr),
      trace(std::getenv("SIMGPU_TRACE") != nullptr),
      random(static_cast<uint64_t>(std::atoll(setting("SIMGPU_SEED", "1")))),
      visible(visible_devices(std::atoi(setting("SIMGPU_DEVICES", "1")))),
      devices(static_cast<int>(visible.size())),
      used(static_cast<size_t>(std::max(devices, 1))),
      total(static_cast<size_t>(std::atoll(setting("SIMGPU_MEMORY_MB", "16384"))) << 20) {
  for (int device = 0; device < devices; ++device) {
    legacy.push_back(std::make_unique<StreamState>());
    legacy.back()->device = device;
    legacy.back()->id = next_id++;
    streams.push_back(legacy.back().get());
  }
  std::atexit(write_counts);
  std::at_quick_exit(write_counts);
}

Machine& machine() {
  static Machine& machine = *new Machine;  // threads of libraries use it until the process has ended
  return machine;
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const char* setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

void break_devices() {
  broken = true;
}
bool devices_are_broken() {
  return broken;
}

cudaError_t fail(cudaError_t error) {
  if (broken) error = cudaErrorLaunchFailure;
  if (error != cudaSuccess) error_now = error;
  return error;
}

cudaError_t last_error(bool forget) {
  return forget ? std::exchange(error_now, cudaSuccess) : error_now;
}

StreamState* state(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
    return machine().legacy.at(static_cast<size_t>(current_device)).get();
  return reinterpret_cast<StreamState*>(stream);
}

cudaError_t make_stream(cudaStream_t* stream, unsigned flags) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  auto* made = new StreamState;
  made->device = current_device;
  made->flags = flags;
  made->id = m.next_id++;
  made->favour = static_cast<double>(m.random() % 1000);
  m.streams.push_back(made);
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}

void invalidate(const CapturePtr& capture, const char* by) {
  if (!capture->invalid) note(std::string("a capture is invalid since ") + by);
  capture->invalid = true;
}

bool prohibited(const char* call) {
  if (capture_interaction == cudaStreamCaptureModeRelaxed) return false;
  bool any = false;
  for (const CapturePtr& capture : machine().captures) {
    const bool own = capture->thread == std::this_thread::get_id();
    const bool both_global =
        capture_interaction == cudaStreamCaptureModeGlobal && capture->mode == cudaStreamCaptureModeGlobal;
    if (own ? capture->mode != cudaStreamCaptureModeRelaxed : both_global) {
      invalidate(capture, call);
      any = true;
    }
  }
  return any;
}

void push(StreamState* stream, Work work, Lock& lock) {
  Machine& m = machine();
  m.last_call = now();
  work.end->stream = stream;
  ++m.given[static_cast<size_t>(work.sort)];
  // The default stream and streams that were made as blocking wait for each other.
  StreamState* const legacy = m.legacy[static_cast<size_t>(stream->device)].get();
  if (stream == legacy) {
    for (const StreamState* other : m.streams) {
      if (other != stream && other->device == stream->device && !(other->flags & cudaStreamNonBlocking) &&
          other->tail) {
        work.waits.push_back(other->tail);
      }
    }
  } else if (!(stream->flags & cudaStreamNonBlocking) && legacy->tail) {
    work.waits.push_back(legacy->tail);
  }
  if (races().wanted) order(stream, work);
  stream->tail = work.end;
  if (!m.late) {
    if (work.make) {
      lock.unlock();
      const Acting acting(work.actor);
      const Step step = begun(work.make, work.actor, work.accesses);
      for (int i = 0; !step(); ++i) usleep(i < 100 ? 20 : 200);
      lock.lock();
      if (m.trace)
        std::fprintf(stderr, "simgpu %d: stream %lu did %s\n", getpid(), stream->id, work.name.c_str());
    }
    work.end->time = now();
    work.end->done = true;
    return;
  }
  go_on_in_background();
  stream->queue.push_back(std::move(work));
  while (std::generate_canonical<double, 32>(m.random) < m.progress && random_step(lock)) {
  }
}

cudaError_t give(StreamState* stream, Sort sort, std::string name, Maker make, std::vector<Access> accesses,
                 const void* chain, Lock& lock) {
  Machine& m = machine();
  if (stream->capture) {
    if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    record(stream, sort, std::move(name), std::move(make), std::move(accesses), chain);
    return cudaSuccess;
  }
  if (stream == m.legacy[static_cast<size_t>(stream->device)].get()) {
    for (const CapturePtr& capture : m.captures) {
      for (const StreamState* other : capture->streams) {
        if (capture->mode != cudaStreamCaptureModeRelaxed && !(other->flags & cudaStreamNonBlocking)) {
          invalidate(capture, "work on the default stream, which would wait for it");
          return cudaErrorStreamCaptureImplicit;
        }
      }
    }
  }
  Work work;
  work.sort = sort;
  work.name = std::move(name);
  work.make = std::move(make);
  work.accesses = std::move(accesses);
  if (chain != nullptr) {
    MarkerPtr& before = m.chains[chain];
    if (before) work.waits.push_back(before);
    before = work.end;
  }
  push(stream, std::move(work), lock);
  return cudaSuccess;
}

void towards(const MarkerPtr& target, Lock& lock) {
  step_towards(target, lock);
}

void host_waits() {
  ++machine().host_waits;
  note("the host waits");
}

void wait_for(const MarkerPtr& target, Lock& lock) {
  Machine& m = machine();
  double since = now();
  bool told = false;
  while (target && !target->done) {
    m.last_call = now();
    if (step_towards(target, lock)) {
      since = now();
      continue;
    }
    lock.unlock();
    usleep(kPoll);
    lock.lock();
    if (!told && now() - since > kTellAfter) {
      told = true;
      std::string waiting;
      for (const StreamState* stream : m.streams)
        waiting += stream->queue.empty() ? "" : " " + stream->queue.front().name;
      std::fprintf(stderr, "simgpu %d: nothing has moved for %.0f s; first in the streams:%s\n", getpid(),
                   kTellAfter, waiting.c_str());
    }
  }
  host_learns(target);
}

void drain(int device, Lock& lock) {
  Machine& m = machine();
  for (bool all = false; !all;) {
    all = true;
    for (size_t i = 0; i < m.streams.size(); ++i) {  // more may come while this waits
      StreamState* const stream = m.streams[i];
      if (stream->device == device && stream->tail) {
        all = all && stream->tail->done;
        wait_for(MarkerPtr(stream->tail), lock);
      }
    }
  }
}

void die(const std::string& what) {
  std::fprintf(stderr, "simgpu %d: %s\n", getpid(), what.c_str());
  print_backtrace();
  std::abort();
}

void note(const std::string& what) {
  if (machine().verbose) {
    std::fprintf(stderr, "simgpu %d: %s\n", getpid(), what.c_str());
    if (std::getenv("SIMGPU_BACKTRACE") != nullptr) print_backtrace();
  }
}

cudaError_t enqueue(cudaStream_t stream, Sort sort, std::string name, Maker maker,
                    std::vector<Access> accesses, const void* chain) {
  Lock lock(machine().mutex);
  return fail(give(state(stream), sort, std::move(name), std::move(maker), std::move(accesses), chain, lock));
}

bool capturing(cudaStream_t stream) {
  const Lock lock(machine().mutex);
  return state(stream)->capture != nullptr;
}

bool deferred(cudaStream_t stream) {
  return machine().late || capturing(stream);
}

bool late() {
  return machine().late;
}

int device_count() {
  return machine().devices;
}

bool on_device(const void* address) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  const auto block = m.memory.holding(address);
  return block != m.memory.none() && block->second.kind == Kind::device;
}

}  // namespace simgpu
