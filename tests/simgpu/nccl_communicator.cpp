// The stand-in for NCCL: communicators. A rank that has died is silence, as it is to NCCL. With
// SIMGPU_NCCL_NOTICES=1 the others see an error of the network.
#include "tests/simgpu/nccl_communicator.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "tests/simgpu/simgpu.hpp"

#define API extern "C" __attribute__((visibility("default")))

namespace {

using simgpu::kHeaderBytes;
using simgpu::kMostRanks;
using simgpu::Mailbox;
using simgpu::Member;

constexpr useconds_t kPoll = 200;  // microseconds
constexpr int kMeetingPolls = 600 * 5000;

bool ranks_share_a_device(const ncclComm& comm) {
  for (int a = 0; a < comm.size; ++a) {
    for (int b = 0; b < a; ++b) {
      const Member &x = comm.header().members[a], &y = comm.header().members[b];
      if (x.device == y.device && std::strcmp(x.visible, y.visible) == 0) {
        std::fprintf(stderr,
                     "simgpu nccl: Duplicate GPU detected : rank %d and rank %d both on CUDA device\n", a, b);
        return true;
      }
    }
  }
  return false;
}

ncclResult_t join(ncclComm_t* out, int size, const std::string& name, int rank) {
  if (size > kMostRanks || rank < 0 || rank >= size) return ncclInvalidArgument;
  auto* const comm = new ncclComm;  // for good: work on a stream may still look at it
  comm->rank = rank;
  comm->size = size;
  cudaGetDevice(&comm->device);
  const size_t bytes = kHeaderBytes + sizeof(Mailbox) * static_cast<size_t>(size) * static_cast<size_t>(size);
  const std::string file = "/simgpu-nccl-" + name;
  const int descriptor = shm_open(file.c_str(), O_CREAT | O_RDWR, 0600);
  if (descriptor < 0 || ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) return ncclSystemError;
  comm->memory = static_cast<char*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0));
  close(descriptor);
  Member& own = comm->header().members[rank];
  own.pid = getpid();
  own.device = comm->device;
  std::snprintf(own.visible, sizeof own.visible, "%s", simgpu::setting("CUDA_VISIBLE_DEVICES", ""));
  comm->header().arrived.fetch_add(1);
  for (int polls = 0; comm->header().arrived.load() < size; ++polls) {
    if (polls == kMeetingPolls) return ncclSystemError;
    usleep(kPoll);
  }
  shm_unlink(file.c_str());
  if (std::string(simgpu::setting("NCCL_MULTI_RANK_GPU_ENABLE", "0")) != "1" && ranks_share_a_device(*comm))
    return ncclInvalidUsage;
  *out = comm;
  return ncclSuccess;
}

void leave(const ncclComm& comm) {
  comm.header().members[comm.rank].gone = 1;
}

// NCCL's network notices a process that has ended without leaving.
bool peer_has_died(const ncclComm& comm) {
  for (int r = 0; r < comm.size; ++r) {
    const Member& member = comm.header().members[r];
    if (r != comm.rank && !member.gone && access(("/proc/" + std::to_string(member.pid)).c_str(), F_OK) != 0)
      return true;
  }
  return false;
}

}  // namespace

API ncclResult_t ncclGetVersion(int* version) {
  const char* said = std::getenv("SIMGPU_NCCL_VERSION");
  *version = said != nullptr ? std::atoi(said) : NCCL_VERSION_CODE;
  return ncclSuccess;
}
API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "%d-%08x%08x", getpid(), random(), random());
  return ncclSuccess;
}
API ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return join(comm, size, id.internal, rank);
}
API ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                        ncclConfig_t*) {
  return join(comm, size, id.internal, rank);
}
API ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int size, int rank, int, ncclUniqueId* ids,
                                          ncclConfig_t*) {
  return join(comm, size, ids[0].internal, rank);
}
API ncclResult_t ncclCommFinalize(ncclComm_t) {
  return ncclSuccess;
}
API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  for (int i = 0; comm->under_way > 0 && !comm->aborted && i < 100000; ++i) usleep(kPoll);
  leave(*comm);
  return ncclSuccess;
}
API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  simgpu::note("ncclCommAbort");
  comm->aborted = true;
  leave(*comm);
  return ncclSuccess;
}
API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (std::getenv("SIMGPU_NCCL_NOTICES") != nullptr && comm->error == ncclSuccess && peer_has_died(*comm))
    comm->error = ncclRemoteError;
  *error = static_cast<ncclResult_t>(comm->error.load());
  return ncclSuccess;
}
API ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->size;
  return ncclSuccess;
}
API ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
API ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int* device) {
  *device = comm->device;
  return ncclSuccess;
}
API const char* ncclGetErrorString(ncclResult_t error) {
  switch (error) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "internal error";
  }
}
API const char* ncclGetLastError(ncclComm_t) {
  return "simulated NCCL";
}
