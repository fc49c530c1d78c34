// The stand-in for NCCL: collectives between the ranks of one host, processes or threads. Everything is
// made of messages; a collective is work on a simulated stream that goes on a little whenever it is asked.
#include <nccl.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/simgpu/nccl_communicator.hpp"
#include "tests/simgpu/nccl_sums.hpp"
#include "tests/simgpu/simgpu.hpp"

#define API extern "C" __attribute__((visibility("default")))

namespace {

using simgpu::Message;

// Messages, made when the work begins, and what comes after them.
struct Exchange {
  std::vector<Message> messages;
  std::function<void()> after;

  void send(ncclComm* comm, int peer, const void* data, size_t bytes) {
    messages.push_back({comm, peer, true, static_cast<char*>(const_cast<void*>(data)), bytes});
  }
  void receive(ncclComm* comm, int peer, void* data, size_t bytes) {
    messages.push_back({comm, peer, false, static_cast<char*>(data), bytes});
  }
};
using Begin = std::function<Exchange()>;

// A call between ncclGroupStart and ncclGroupEnd.
struct Part {
  ncclComm* comm;
  cudaStream_t stream;
  std::string name;
  std::vector<simgpu::Access> accesses;
  Begin begin;
};
thread_local int group_depth = 0;
thread_local std::vector<Part> group;

// NCCL: graphs that hold calls of several communicators have been seen to deadlock.
void refuse_two_in_a_graph(const ncclComm* comm, cudaStream_t stream) {
  static std::map<unsigned long long, const ncclComm*>& of_capture =
      *new std::map<unsigned long long, const ncclComm*>;
  static std::mutex& mutex = *new std::mutex;  // of ranks that are threads
  const std::lock_guard lock(mutex);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long id = 0;
  if (cudaStreamGetCaptureInfo(stream, &status, &id) == cudaSuccess &&
      status == cudaStreamCaptureStatusActive && of_capture.emplace(id, comm).first->second != comm)
    simgpu::die("one graph holds calls of two NCCL communicators, which can deadlock");
}

// The exchanges are one piece of work on the stream.
ncclResult_t submit(ncclComm* comm, cudaStream_t stream, const std::string& name,
                    std::vector<simgpu::Access> accesses, std::vector<Begin> begins) {
  int device = 0;
  cudaGetDevice(&device);
  cudaSetDevice(comm->device);
  refuse_two_in_a_graph(comm, stream);
  const simgpu::Maker maker = [comm, begins = std::move(begins)] {
    const auto exchanges = std::make_shared<std::vector<Exchange>>();
    for (const Begin& begin : begins) exchanges->push_back(begin());
    ++comm->under_way;
    return simgpu::Step([comm, exchanges] {
      bool all = true;
      if (!comm->aborted) {
        for (Exchange& exchange : *exchanges)
          for (Message& message : exchange.messages) all = message.move() && all;
        if (!all) return false;
        for (Exchange& exchange : *exchanges)
          if (exchange.after) exchange.after();
      }
      --comm->under_way;
      return true;
    });
  };
  const cudaError_t error =
      simgpu::enqueue(stream, simgpu::Sort::collective, "nccl " + name, maker, std::move(accesses), comm);
  cudaSetDevice(device);
  return error == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

simgpu::Access reads(const void* data, size_t count, ncclDataType_t type) {
  return {data, count * simgpu::bytes_of(type), false};
}
simgpu::Access writes(const void* data, size_t count, ncclDataType_t type) {
  return {data, count * simgpu::bytes_of(type), true};
}

ncclResult_t add(ncclComm* comm, cudaStream_t stream, const char* name, std::vector<simgpu::Access> accesses,
                 Begin begin) {
  for (const simgpu::Access& access : accesses)
    if (access.first != nullptr && !simgpu::on_device(access.first))
      simgpu::die(std::string(name) + ": NCCL was given memory that is not on a device");
  if (comm->aborted) return ncclInvalidUsage;
  if (group_depth > 0) {
    group.push_back({comm, stream, name, std::move(accesses), std::move(begin)});
    return ncclSuccess;
  }
  return submit(comm, stream, name, std::move(accesses), {std::move(begin)});
}

using Bytes = std::shared_ptr<std::vector<char>>;

// Every rank's bytes for every rank: `piece(r)` are those for rank r, and what comes from rank r is piece r
// of `all`.
template <class Piece>
Exchange everyone_with_everyone(ncclComm* comm, const Bytes& all, size_t bytes, const Piece& piece) {
  Exchange exchange;
  all->resize(bytes * static_cast<size_t>(comm->size));
  for (int r = 0; r < comm->size; ++r) {
    char* const place = all->data() + static_cast<size_t>(r) * bytes;
    if (r == comm->rank) {
      std::memcpy(place, piece(r), bytes);
    } else {
      exchange.send(comm, r, piece(r), bytes);
      exchange.receive(comm, r, place, bytes);
    }
  }
  return exchange;
}

// The ranks' pieces of `all`, reduced in the order of the ranks, into `out`.
std::function<void()> reduction(const Bytes& all, void* out, size_t count, ncclDataType_t type,
                                ncclRedOp_t operation, int size) {
  return [=] {
    const size_t bytes = count * simgpu::bytes_of(type);
    for (int r = 1; r < size; ++r)
      simgpu::reduce_into(all->data(), all->data() + static_cast<size_t>(r) * bytes, count, type, operation);
    if (operation == ncclAvg) simgpu::divide(all->data(), count, type, size);
    std::memcpy(out, all->data(), bytes);
  };
}

}  // namespace

// ---- groups

API ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}
API ncclResult_t ncclGroupEnd() {
  if (--group_depth > 0) return ncclSuccess;
  std::vector<Part> parts = std::exchange(group, {});
  ncclResult_t result = ncclSuccess;
  while (!parts.empty()) {  // those of one communicator and stream are one piece of work
    const Part first = parts.front();
    std::vector<simgpu::Access> accesses;
    std::vector<Begin> begins;
    std::vector<Part> others;
    for (Part& part : parts) {
      if (part.comm == first.comm && part.stream == first.stream) {
        accesses.insert(accesses.end(), part.accesses.begin(), part.accesses.end());
        begins.push_back(std::move(part.begin));
      } else {
        others.push_back(std::move(part));
      }
    }
    const ncclResult_t one =
        submit(first.comm, first.stream, first.name, std::move(accesses), std::move(begins));
    result = one != ncclSuccess ? one : result;
    parts.swap(others);
  }
  return result;
}

// ---- collectives

API ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, "all_reduce", {reads(in, count, type), writes(out, count, type)}, [=] {
    const Bytes all = std::make_shared<std::vector<char>>();
    Exchange exchange =
        everyone_with_everyone(comm, all, count * simgpu::bytes_of(type), [&](int) { return in; });
    exchange.after = reduction(all, out, count, type, operation, comm->size);
    return exchange;
  });
}

API ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                            ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t stream) {
  std::vector<simgpu::Access> accesses{reads(in, count, type)};
  if (comm->rank == root) accesses.push_back(writes(out, count, type));
  return add(comm, stream, "reduce", std::move(accesses), [=] {
    const size_t bytes = count * simgpu::bytes_of(type);
    Exchange exchange;
    if (comm->rank != root) {
      exchange.send(comm, root, in, bytes);
      return exchange;
    }
    const Bytes all = std::make_shared<std::vector<char>>(bytes * static_cast<size_t>(comm->size));
    for (int r = 0; r < comm->size; ++r) {
      char* const place = all->data() + static_cast<size_t>(r) * bytes;
      if (r == root)
        std::memcpy(place, in, bytes);
      else
        exchange.receive(comm, r, place, bytes);
    }
    exchange.after = reduction(all, out, count, type, operation, comm->size);
    return exchange;
  });
}

API ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                               ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, "broadcast",
             {reads(in, comm->rank == root ? count : 0, type), writes(out, count, type)}, [=] {
               const size_t bytes = count * simgpu::bytes_of(type);
               Exchange exchange;
               if (comm->rank != root) {
                 exchange.receive(comm, root, out, bytes);
                 return exchange;
               }
               if (in != out) std::memcpy(out, in, bytes);
               for (int r = 0; r < comm->size; ++r)
                 if (r != root) exchange.send(comm, r, out, bytes);
               return exchange;
             });
}
API ncclResult_t ncclBcast(void* data, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}

API ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream) {
  return add(comm, stream, "all_gather",
             {reads(in, count, type), writes(out, count * static_cast<size_t>(comm->size), type)}, [=] {
               const Bytes all = std::make_shared<std::vector<char>>();
               Exchange exchange =
                   everyone_with_everyone(comm, all, count * simgpu::bytes_of(type), [&](int) { return in; });
               exchange.after = [=] { std::memcpy(out, all->data(), all->size()); };
               return exchange;
             });
}

API ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                                   ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream) {
  return add(comm, stream, "reduce_scatter",
             {reads(in, count * static_cast<size_t>(comm->size), type), writes(out, count, type)}, [=] {
               const size_t bytes = count * simgpu::bytes_of(type);
               const Bytes all = std::make_shared<std::vector<char>>();
               Exchange exchange = everyone_with_everyone(comm, all, bytes, [&](int r) {
                 return static_cast<const char*>(in) + static_cast<size_t>(r) * bytes;
               });
               exchange.after = reduction(all, out, count, type, operation, comm->size);
               return exchange;
             });
}

API ncclResult_t ncclAlltoAll(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                              cudaStream_t stream) {
  return add(comm, stream, "all_to_all",
             {reads(in, count * static_cast<size_t>(comm->size), type),
              writes(out, count * static_cast<size_t>(comm->size), type)},
             [=] {
               const size_t bytes = count * simgpu::bytes_of(type);
               const Bytes all = std::make_shared<std::vector<char>>();
               Exchange exchange = everyone_with_everyone(comm, all, bytes, [&](int r) {
                 return static_cast<const char*>(in) + static_cast<size_t>(r) * bytes;
               });
               exchange.after = [=] { std::memcpy(out, all->data(), all->size()); };
               return exchange;
             });
}

API ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                          cudaStream_t stream) {
  return add(comm, stream, "send and receive", {reads(in, count, type)}, [=] {
    Exchange exchange;
    exchange.send(comm, peer, in, count * simgpu::bytes_of(type));
    return exchange;
  });
}
API ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                          cudaStream_t stream) {
  return add(comm, stream, "send and receive", {writes(out, count, type)}, [=] {
    Exchange exchange;
    exchange.receive(comm, peer, out, count * simgpu::bytes_of(type));
    return exchange;
  });
}

// ---- memory

API ncclResult_t ncclCommRegister(const ncclComm_t, void*, size_t, void** handle) {
  static int any;
  *handle = &any;
  return ncclSuccess;
}
API ncclResult_t ncclCommDeregister(const ncclComm_t, void*) {
  return ncclSuccess;
}
API ncclResult_t ncclMemAlloc(void** address, size_t bytes) {
  return cudaMalloc(address, bytes) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
API ncclResult_t ncclMemFree(void* address) {
  return cudaFree(address) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}
