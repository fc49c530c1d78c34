// The false CUDA runtime: memory and copies.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/simgpu/machine.hpp"

#define API extern "C" __attribute__((visibility("default")))

using namespace simgpu;

namespace {

size_t digest_of(const void* first, size_t bytes) {
  return std::hash<std::string_view>()({static_cast<const char*>(first), bytes});
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, StreamState* stream,
                 bool waits, Lock& lock) {
  if (bytes == 0) return cudaSuccess;
  Machine& m = machine();
  const auto target = m.memory.holding(to), source = m.memory.holding(from), none = m.memory.none();
  const bool to_device = target != none && target->second.kind == Kind::device;
  const bool from_device = source != none && source->second.kind == Kind::device;
  if ((kind == cudaMemcpyHostToDevice && (!to_device || from_device)) ||
      (kind == cudaMemcpyDeviceToHost && (to_device || !from_device)) ||
      (kind == cudaMemcpyDeviceToDevice && (!to_device || !from_device))) {
    note("a copy whose kind does not fit its addresses");
    return cudaErrorInvalidValue;
  }
  for (const auto& [block, address] :
       {std::pair(target, static_cast<const void*>(to)), std::pair(source, from)}) {
    if (block != none && reinterpret_cast<uintptr_t>(address) + bytes > block->first + block->second.size) {
      note("a copy beyond the end of a block");
      return cudaErrorInvalidValue;
    }
  }
  const bool pageable_from = source == none, pageable_to = target == none;
  if (stream->capture && waits) {
    invalidate(stream->capture, "a copy that waits");
    return cudaErrorStreamCaptureUnsupported;
  }
  Maker move = once([=] { std::memmove(to, from, bytes); });
  if (pageable_from && m.late && !stream->capture) {  // the runtime takes such memory before the call returns
    const char* const first = static_cast<const char*>(from);
    const auto taken = std::make_shared<std::vector<char>>(first, first + bytes);
    move = once([=] { std::memcpy(to, taken->data(), bytes); });
  }
  if (races().wanted && source != none && source->second.kind == Kind::pinned && !stream->capture) {
    move = once([=, id = stream->id, digest = digest_of(from, bytes)] {
      if (digest_of(from, bytes) != digest) {
        const std::lock_guard told(races().mutex);
        races().tell("the host has changed pinned memory before a copy (stream " + std::to_string(id) +
                     ") was done with it");
      }
      std::memcpy(to, from, bytes);
    });
  }
  const cudaError_t error = give(stream, Sort::copy, "copy", std::move(move),
                                 {{from, bytes, false}, {to, bytes, true}}, nullptr, lock);
  if (error == cudaSuccess && !stream->capture && (waits || pageable_to)) {
    host_waits();
    wait_for(MarkerPtr(stream->tail), lock);
  }
  return error;
}

// Whether the test lets this device run out of memory in a recording alone.
bool is_out_of_memory_now(int device) {
  const char* of = std::getenv("SIMGPU_NO_MEMORY_IN_CAPTURES");
  if (of == nullptr || std::atoi(of) != device) return false;
  for (const CapturePtr& capture : machine().captures)
    if (capture->origin->device == device) return true;
  return false;
}

size_t limit_of(int device) {
  const char* own = std::getenv(("SIMGPU_MEMORY_MB_" + std::to_string(device)).c_str());
  return own != nullptr ? static_cast<size_t>(std::atoll(own)) << 20 : machine().total;
}

// Memory that other processes open: a file of the process that has it. As on a GPU, not by itself.
struct SharedHandle {
  pid_t process;
  int file, device;
  size_t size;
};
static_assert(sizeof(SharedHandle) <= sizeof(cudaIpcMemHandle_t));

}  // namespace

API cudaError_t cudaMalloc(void** address, size_t size) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  if (prohibited("cudaMalloc")) return fail(cudaErrorStreamCaptureUnsupported);
  size_t& used = m.used.at(static_cast<size_t>(current_device));
  if (used + size > limit_of(current_device) || is_out_of_memory_now(current_device))
    return fail(cudaErrorMemoryAllocation);
  const cudaError_t error = m.memory.allocate(address, size, Kind::device, current_device);
  used += error == cudaSuccess ? size : 0;
  return fail(error);
}

API cudaError_t cudaFree(void* address) {
  if (address == nullptr) return cudaSuccess;
  Machine& m = machine();
  Lock lock(m.mutex);
  if (prohibited("cudaFree")) return fail(cudaErrorStreamCaptureUnsupported);
  const auto found = m.memory.beginning_at(address);
  if (found == m.memory.none() || found->second.kind != Kind::device) return fail(cudaErrorInvalidValue);
  drain(found->second.device, lock);
  const auto block = m.memory.beginning_at(address);  // the mutex was given away
  m.used.at(static_cast<size_t>(block->second.device)) -= block->second.size;
  m.memory.release(block);
  return cudaSuccess;
}

API cudaError_t cudaHostAlloc(void** address, size_t size, unsigned) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  if (prohibited("cudaHostAlloc")) return fail(cudaErrorStreamCaptureUnsupported);
  return fail(m.memory.allocate(address, size, Kind::pinned, current_device));
}
API cudaError_t cudaMallocHost(void** address, size_t size) {
  return cudaHostAlloc(address, size, 0);
}
API cudaError_t cudaFreeHost(void* address) {
  if (address == nullptr) return cudaSuccess;
  Machine& m = machine();
  const Lock lock(m.mutex);
  const auto block = m.memory.beginning_at(address);
  if (block == m.memory.none() || block->second.kind != Kind::pinned) return fail(cudaErrorInvalidValue);
  m.memory.release(block);
  return cudaSuccess;
}
API cudaError_t cudaHostRegister(void* address, size_t size, unsigned) {
  const Lock lock(machine().mutex);
  machine().memory.add_registered(address, size, current_device);
  return cudaSuccess;
}
API cudaError_t cudaHostUnregister(void* address) {
  const Lock lock(machine().mutex);
  machine().memory.remove_registered(address);
  return cudaSuccess;
}

API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* address) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  const auto block = m.memory.beginning_at(address);
  if (block == m.memory.none() || block->second.kind != Kind::device) return fail(cudaErrorInvalidValue);
  const SharedHandle shared{getpid(), m.memory.shared_file(block), block->second.device, block->second.size};
  std::memcpy(handle, &shared, sizeof shared);
  return fail(cudaSuccess);
}
API cudaError_t cudaIpcOpenMemHandle(void** address, cudaIpcMemHandle_t handle, unsigned) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  SharedHandle shared;
  std::memcpy(&shared, &handle, sizeof shared);
  if (shared.process == getpid()) return fail(cudaErrorDeviceUninitialized);
  const int alone = std::atoi(setting("SIMGPU_ALONE", "-1"));
  if (shared.device != current_device && (shared.device == alone || current_device == alone))
    return fail(cudaErrorPeerAccessUnsupported);
  const std::string name = "/proc/" + std::to_string(shared.process) + "/fd/" + std::to_string(shared.file);
  const int file = open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return fail(cudaErrorMapBufferObjectFailed);
  const cudaError_t error = m.memory.open_shared(address, file, shared.size, current_device);
  close(file);
  return fail(error);
}
API cudaError_t cudaIpcCloseMemHandle(void* address) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  const auto block = m.memory.beginning_at(address);
  if (block == m.memory.none()) return fail(cudaErrorInvalidValue);
  m.memory.release(block);
  return fail(cudaSuccess);
}

API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  *total = m.total;
  *free = m.total - m.used.at(static_cast<size_t>(current_device));
  return cudaSuccess;
}

API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  Machine& m = machine();
  const Lock lock(m.mutex);
  std::memset(attributes, 0, sizeof *attributes);
  const auto block = m.memory.holding(address);
  if (block == m.memory.none()) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -1;
    return cudaSuccess;
  }
  const bool device = block->second.kind == Kind::device;
  attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = block->second.device;
  attributes->devicePointer = const_cast<void*>(address);
  attributes->hostPointer = device ? nullptr : const_cast<void*>(address);
  return cudaSuccess;
}

API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                                cudaStream_t stream) {
  Lock lock(machine().mutex);
  return fail(copy(to, from, bytes, kind, state(stream), false, lock));
}
API cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  Lock lock(machine().mutex);
  if (prohibited("cudaMemcpy")) return fail(cudaErrorStreamCaptureUnsupported);
  return fail(copy(to, from, bytes, kind, state(nullptr), true, lock));
}
API cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
API cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  return enqueue(stream, Sort::set, "memset", once([=] { std::memset(address, value, bytes); }),
                 {{address, bytes, true}});
}
API cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return cudaMemsetAsync(address, value, bytes, nullptr);
}
