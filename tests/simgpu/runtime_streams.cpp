// The false CUDA runtime: streams, events, captures and graphs.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simgpu/machine.hpp"

#define API extern "C" __attribute__((visibility("default")))

using namespace simgpu;

namespace {

cudaStreamCaptureStatus status_of(const StreamState& stream) {
  if (!stream.capture) return cudaStreamCaptureStatusNone;
  return stream.capture->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

// Whether all that the capture's streams have recorded comes before the end of the stream that began it.
bool joined(const Capture& capture, const StreamState& origin) {
  const std::vector<Node>& nodes = capture.graph->nodes;
  std::set<int> reached(origin.last.begin(), origin.last.end());
  for (size_t i = nodes.size(); i-- > 0;)
    if (reached.count(static_cast<int>(i)) > 0) reached.insert(nodes[i].after.begin(), nodes[i].after.end());
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](const StreamState* stream) {
    return std::all_of(stream->last.begin(), stream->last.end(),
                       [&](int node) { return reached.count(node) > 0; });
  });
}

GraphPtr& graph_of(cudaGraph_t graph) {
  return *reinterpret_cast<GraphPtr*>(graph);
}

// Nodes are known by their numbers + 1.
cudaGraphNode_t handle_of(size_t node) {
  return reinterpret_cast<cudaGraphNode_t>(node + 1);
}

}  // namespace

// ---- streams

API cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return make_stream(stream, 0);
}
API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return make_stream(stream, flags);
}
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return make_stream(stream, flags);
}
API cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}

API cudaError_t cudaStreamSynchronize(cudaStream_t given) {
  Machine& m = machine();
  Lock lock(m.mutex);
  StreamState* const stream = state(given);
  if (stream->capture) {
    invalidate(stream->capture, "cudaStreamSynchronize");
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  host_waits();
  if (given == nullptr) {
    for (StreamState* other : std::vector<StreamState*>(m.streams))
      if (other->device == stream->device && !(other->flags & cudaStreamNonBlocking))
        wait_for(MarkerPtr(other->tail), lock);
  }
  wait_for(MarkerPtr(stream->tail), lock);
  return cudaSuccess;
}

API cudaError_t cudaStreamQuery(cudaStream_t given) {
  Lock lock(machine().mutex);
  StreamState* const stream = state(given);
  if (stream->capture) {
    invalidate(stream->capture, "cudaStreamQuery");
    return fail(cudaErrorStreamCaptureUnsupported);
  }
  const MarkerPtr tail = stream->tail;
  if (tail && !tail->done) towards(tail, lock);
  if (tail && !tail->done) return fail(cudaErrorNotReady);
  host_learns(tail);
  return cudaSuccess;
}

API cudaError_t cudaStreamWaitEvent(cudaStream_t given, cudaEvent_t which, unsigned) {
  Machine& m = machine();
  Lock lock(m.mutex);
  StreamState* const stream = state(given);
  const auto* event = reinterpret_cast<EventState*>(which);
  if (event->capture) {
    if (m.captures.count(event->capture) == 0) return fail(cudaErrorCapturedEvent);
    if (stream->capture && stream->capture != event->capture) {
      invalidate(stream->capture, "waiting for another capture's event");
      invalidate(event->capture, "waiting for another capture's event");
      return fail(cudaErrorStreamCaptureMerge);
    }
    if (!stream->capture) {
      stream->capture = event->capture;
      stream->capture->streams.insert(stream);
      stream->last.clear();
    }
    for (int node : event->after)
      if (std::find(stream->last.begin(), stream->last.end(), node) == stream->last.end())
        stream->last.push_back(node);
    return cudaSuccess;
  }
  if (!event->marker) return cudaSuccess;
  if (stream->capture) {
    invalidate(stream->capture, "waiting for an event from outside");
    return fail(cudaErrorStreamCaptureIsolation);
  }
  Work work;
  work.name = "wait";
  work.waits.push_back(event->marker);
  push(stream, std::move(work), lock);
  return cudaSuccess;
}

API cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return enqueue(stream, Sort::kernel, "host function", once([=] { function(data); }));
}
API cudaError_t cudaStreamAddCallback(cudaStream_t, cudaStreamCallback_t, void*, unsigned) {
  die("cudaStreamAddCallback is not simulated");
}

// ---- events

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  auto* const made = new EventState;
  made->device = current_device;
  made->flags = flags;
  *event = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}
API cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, 0);
}
API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(machine().mutex);
  delete reinterpret_cast<EventState*>(event);
  return cudaSuccess;
}

API cudaError_t cudaEventRecordWithFlags(cudaEvent_t which, cudaStream_t given, unsigned) {
  Lock lock(machine().mutex);
  StreamState* const stream = state(given);
  auto* const event = reinterpret_cast<EventState*>(which);
  if (event->device != stream->device) return fail(cudaErrorInvalidResourceHandle);
  if (stream->capture) {
    if (stream->capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
    event->capture = stream->capture;
    event->after = stream->last;
    event->marker = nullptr;
    return cudaSuccess;
  }
  event->capture = nullptr;
  Work work;
  work.name = "record";
  event->marker = work.end;
  push(stream, std::move(work), lock);
  return cudaSuccess;
}
API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

API cudaError_t cudaEventQuery(cudaEvent_t which) {
  Machine& m = machine();
  Lock lock(m.mutex);
  const auto* event = reinterpret_cast<EventState*>(which);
  if (event->capture) return fail(cudaErrorCapturedEvent);
  if (prohibited("cudaEventQuery")) return fail(cudaErrorStreamCaptureUnsupported);
  const MarkerPtr marker = event->marker;
  if (marker && !marker->done && m.random() % 2 == 0) towards(marker, lock);
  if (marker && !marker->done) return fail(cudaErrorNotReady);
  host_learns(marker);
  return cudaSuccess;
}

API cudaError_t cudaEventSynchronize(cudaEvent_t which) {
  Machine& m = machine();
  Lock lock(m.mutex);
  const auto* event = reinterpret_cast<EventState*>(which);
  if (event->capture) return fail(cudaErrorCapturedEvent);
  if (prohibited("cudaEventSynchronize")) return fail(cudaErrorStreamCaptureUnsupported);
  host_waits();
  wait_for(MarkerPtr(event->marker), lock);
  return cudaSuccess;
}

API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t first, cudaEvent_t second) {
  const Lock lock(machine().mutex);
  const auto *from = reinterpret_cast<EventState*>(first), *to = reinterpret_cast<EventState*>(second);
  if (from->capture || to->capture) return fail(cudaErrorCapturedEvent);
  if (!from->marker || !to->marker || ((from->flags | to->flags) & cudaEventDisableTiming) ||
      from->device != to->device) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (!from->marker->done || !to->marker->done) return fail(cudaErrorNotReady);
  *ms = static_cast<float>((to->marker->time - from->marker->time) * 1e3);
  return cudaSuccess;
}

// ---- captures

API cudaError_t cudaStreamBeginCapture(cudaStream_t given, cudaStreamCaptureMode mode) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  StreamState* const stream = state(given);
  if (stream == m.legacy[static_cast<size_t>(stream->device)].get())
    return fail(cudaErrorStreamCaptureUnsupported);
  if (stream->capture) return fail(cudaErrorIllegalState);
  const auto capture = std::make_shared<Capture>();
  capture->id = m.next_capture++;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = stream;
  capture->streams.insert(stream);
  stream->capture = capture;
  stream->last.clear();
  m.captures.insert(capture);
  return cudaSuccess;
}

API cudaError_t cudaStreamEndCapture(cudaStream_t given, cudaGraph_t* graph) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  StreamState* const stream = state(given);
  *graph = nullptr;
  const CapturePtr capture = stream->capture;
  if (!capture) return fail(cudaErrorIllegalState);
  if (capture->origin != stream) {
    invalidate(capture, "an end on another stream");
    return fail(cudaErrorStreamCaptureUnmatched);
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return fail(cudaErrorStreamCaptureWrongThread);
  const bool whole = joined(*capture, *stream);
  for (StreamState* other : capture->streams) {
    other->capture = nullptr;
    other->last.clear();
  }
  m.captures.erase(capture);
  if (capture->invalid) return fail(cudaErrorStreamCaptureInvalidated);
  if (!whole) return fail(cudaErrorStreamCaptureUnjoined);
  *graph = reinterpret_cast<cudaGraph_t>(new GraphPtr(capture->graph));
  note("captured " + std::to_string(capture->graph->nodes.size()) + " nodes");
  return cudaSuccess;
}

API cudaError_t cudaStreamIsCapturing(cudaStream_t given, cudaStreamCaptureStatus* status) {
  const Lock lock(machine().mutex);
  if (machine().devices == 0) return fail(cudaErrorNoDevice);
  *status = status_of(*state(given));
  return cudaSuccess;
}

API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t given, cudaStreamCaptureStatus* status,
                                         unsigned long long* id, cudaGraph_t* graph,
                                         const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                         size_t* count) {
  const Lock lock(machine().mutex);
  const StreamState& stream = *state(given);
  *status = status_of(stream);
  if (!stream.capture) return cudaSuccess;
  if (id != nullptr) *id = stream.capture->id;
  if (graph != nullptr) {
    // The caller keeps no count of such a handle, so each capture has one for good.
    static std::map<Capture*, GraphPtr*>& handles = *new std::map<Capture*, GraphPtr*>;
    GraphPtr*& handle = handles[stream.capture.get()];
    if (handle == nullptr || *handle != stream.capture->graph) handle = new GraphPtr(stream.capture->graph);
    *graph = reinterpret_cast<cudaGraph_t>(handle);
  }
  if (nodes != nullptr) {
    thread_local std::vector<cudaGraphNode_t> held;
    held.clear();
    for (int node : stream.last) held.push_back(handle_of(static_cast<size_t>(node)));
    *nodes = held.data();
    if (count != nullptr) *count = held.size();
  }
  if (edges != nullptr) *edges = nullptr;
  return cudaSuccess;
}

API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_interaction);
  return cudaSuccess;
}

// ---- graphs

API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  const size_t all = graph_of(graph)->nodes.size();
  for (size_t i = 0; nodes != nullptr && i < std::min(*count, all); ++i) nodes[i] = handle_of(i);
  *count = all;
  return cudaSuccess;
}
API cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t*) {
  die("cudaGraphNodeGetDependencies is not simulated");
}
API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* which, cudaGraph_t graph, unsigned long long) {
  *which = reinterpret_cast<cudaGraphExec_t>(executable(graph_of(graph)));
  return cudaSuccess;
}
API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* which, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(which, graph, flags);
}
API cudaError_t cudaGraphLaunch(cudaGraphExec_t which, cudaStream_t given) {
  Lock lock(machine().mutex);
  auto* const executable = reinterpret_cast<ExecutableGraph*>(which);
  StreamState* const stream = state(given);
  if (stream->capture) die("a graph that is launched into a capture is not simulated");
  Work work;
  work.sort = Sort::graph;
  work.name = "graph of " + std::to_string(executable->graph->nodes.size());
  work.make = [copy = *executable] { return replay(copy); };
  if (executable->last) work.waits.push_back(executable->last);
  executable->last = work.end;
  for (const Node& node : executable->graph->nodes) executable->begun[node.lane] += 1;
  for (size_t lane = 0; lane < executable->lanes.size(); ++lane) {
    work.leaves.resize(std::max(work.leaves.size(), executable->lanes[lane] + 1));
    work.leaves[executable->lanes[lane]] = executable->begun[lane];
  }
  push(stream, std::move(work), lock);
  return cudaSuccess;
}
API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete &graph_of(graph);
  return cudaSuccess;
}
API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const Lock lock(machine().mutex);
  delete reinterpret_cast<ExecutableGraph*>(executable);
  return cudaSuccess;
}
API cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned) {
  return cudaSuccess;
}
