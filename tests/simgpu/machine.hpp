// The simulated devices: streams, events, captures and graphs, and in which order work is done. In mode
// eager a piece of work is done before the call that gives it returns. In mode late it waits in its stream,
// and a seeded schedule decides which stream goes on, as late as events and host waits allow. A stream that
// captures records its work in a graph.
//
//   schedule starve   streams take turns by weights that change now and then: some stand still for long
//   schedule lazy     nothing is done before somebody waits for it, and then only what that needs
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tests/simgpu/memory.hpp"
#include "tests/simgpu/races.hpp"
#include "tests/simgpu/simgpu.hpp"

namespace simgpu {

using Lock = std::unique_lock<std::mutex>;

struct StreamState;

// The end of a piece of work.
struct Marker {
  std::atomic<bool> done{false};
  double time = 0;  // seconds
  StreamState* stream = nullptr;
  Clock clock;  // what comes before it
};
using MarkerPtr = std::shared_ptr<Marker>;

// A piece of work in a stream. Without `make` it only waits.
struct Work {
  Sort sort = Sort::wait;
  std::string name;
  std::vector<MarkerPtr> waits;
  Maker make;
  Step step;  // once it has begun
  std::vector<Access> accesses;
  Actor actor;
  Clock leaves;  // what it does in other lanes
  MarkerPtr end = std::make_shared<Marker>();
};

struct Node {
  Sort sort;
  std::string name;
  std::vector<int> after;  // indices of nodes
  Maker make;
  std::vector<Access> accesses;
  size_t lane;  // of the graph: a stream that it was recorded from
  Clock clock;  // by these lanes: what comes before it in the graph, and itself
};
struct GraphState {
  std::vector<Node> nodes;
  std::vector<StreamState*> lanes;
};
using GraphPtr = std::shared_ptr<GraphState>;
struct ExecutableGraph {
  GraphPtr graph;
  MarkerPtr last;             // replay
  std::vector<size_t> lanes;  // of the machine, by those of the graph
  Clock begun;                // by lanes of the graph: what the replays so far have done
};

struct Capture {
  unsigned long long id;
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  StreamState* origin;
  GraphPtr graph = std::make_shared<GraphState>();
  std::set<StreamState*> streams;
  std::map<const void*, int> chains;
  bool invalid = false;
};
using CapturePtr = std::shared_ptr<Capture>;

struct StreamState {
  int device = 0;
  unsigned flags = 0;
  uint64_t id = 0;
  std::deque<Work> queue;
  bool busy = false;
  MarkerPtr tail;
  size_t lane = 0;
  Clock clock;
  CapturePtr capture;
  std::vector<int> last;  // the capture's nodes after which this stream's next one comes
  double favour = 0;      // the highest goes on first
};

struct EventState {
  int device = 0;
  unsigned flags = 0;
  MarkerPtr marker;        // that it was recorded behind
  CapturePtr capture;      // or the capture that it was recorded in,
  std::vector<int> after;  // behind these nodes
};

struct Machine {
  Machine();

  std::mutex mutex;
  const bool late;
  const bool lazy;
  const double progress;  // the chance that a step is made when work is given
  const bool verbose;
  const bool trace;
  std::mt19937_64 random;
  const std::vector<int> visible;                    // which of the devices that are there
  const int devices;                                 // how many are visible
  std::vector<std::unique_ptr<StreamState>> legacy;  // the default stream of each device
  std::vector<StreamState*> streams;                 // all
  uint64_t next_id = 1;
  unsigned long long next_capture = 1;
  std::set<CapturePtr> captures;
  Clock host;  // what any thread of the host knows to be done
  Memory memory;
  std::vector<size_t> used;  // bytes of each device
  size_t total = 0;          // bytes of a device
  std::unordered_map<const void*, MarkerPtr> chains;
  std::unordered_map<const void*, const char*> kernels;  // mangled names by their host functions
  std::atomic<double> last_call{0};
  bool in_background = false;
  std::array<std::atomic<int64_t>, 7> given{};  // pieces of work outside of captures, by Sort
  std::atomic<int64_t> host_waits{0};
};

Machine& machine();
inline thread_local int current_device = 0;
inline thread_local cudaStreamCaptureMode capture_interaction = cudaStreamCaptureModeGlobal;

double now();  // seconds

// Remembers an error for cudaGetLastError.
cudaError_t fail(cudaError_t error);
cudaError_t last_error(bool forget);

StreamState* state(cudaStream_t stream);
cudaError_t make_stream(cudaStream_t* stream, unsigned flags);

void invalidate(const CapturePtr& capture, const char* by);
// Whether a call that might disturb a capture is prohibited to this thread. If so, the captures are invalid.
bool prohibited(const char* call);

void push(StreamState* stream, Work work, Lock& lock);
cudaError_t give(StreamState* stream, Sort sort, std::string name, Maker make, std::vector<Access> accesses,
                 const void* chain, Lock& lock);
// The first execution of what touches memory.
Step begun(const Maker& make, Actor& actor, const std::vector<Access>& accesses);
void order(StreamState* stream, Work& work);  // puts it behind what comes before it (clocks.cpp)
void host_learns(const MarkerPtr& end);       // that it is done
void wait_for(const MarkerPtr& target, Lock& lock);
void host_waits();                                  // counts that it does
void towards(const MarkerPtr& target, Lock& lock);  // one step
void drain(int device, Lock& lock);

ExecutableGraph* executable(GraphPtr graph);
// A replay: nodes in an order that their dependencies allow.
Step replay(const ExecutableGraph& executable);

}  // namespace simgpu
