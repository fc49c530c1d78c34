// The false CUDA runtime: devices, errors, kernels of LibTorch (which are never launched here) and the way
// to the driver.
#include <cuda.h>
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/simgpu/machine.hpp"

#define API extern "C" __attribute__((visibility("default")))

using namespace simgpu;

namespace {

// An H100 but for the number of its processors: the emulated kernels are as slow as they have blocks.
constexpr int kThreadsPerBlock = 1024, kThreadsPerProcessor = 2048, kWarp = 32, kDepth = 64;
constexpr int kLargestGrid = 2147483647, kLargestGridYZ = 65535;
constexpr size_t kSharedMemory = 49152, kSharedMemoryOptIn = 232448;

bool exists(int device) {
  return device >= 0 && device < machine().devices;
}

int physical(int device) {
  return machine().visible[static_cast<size_t>(device)];
}

[[noreturn]] void refuse_kernel(const void* host_function) {
  const auto found = machine().kernels.find(host_function);
  if (found == machine().kernels.end()) die("an unknown kernel was launched");
  int status = 0;
  const char* plain = abi::__cxa_demangle(found->second, nullptr, nullptr, &status);
  die(std::string("a kernel was launched whose operator has no stand-in on the CPU: ") +
      (status == 0 ? plain : found->second));
}

struct Named {
  cudaError_t error;
  const char *name, *text;
};
constexpr Named kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

CUresult not_supported() {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult text_of(CUresult, const char** text) {
  *text = "not supported by the simulated driver";
  return CUDA_SUCCESS;
}

}  // namespace

// ---- devices

API cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine().devices;
  return *count == 0 ? fail(cudaErrorNoDevice) : cudaSuccess;
}
API cudaError_t cudaGetDevice(int* device) {
  if (machine().devices == 0) return fail(cudaErrorNoDevice);
  *device = current_device;
  return cudaSuccess;
}
API cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}

API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  std::memset(p, 0, sizeof *p);
  std::snprintf(p->name, sizeof p->name, "Simulated GPU");
  p->totalGlobalMem = machine().total;
  p->major = 9;
  p->multiProcessorCount = std::atoi(setting("SIMGPU_PROCESSORS", "6"));
  p->warpSize = kWarp;
  p->maxThreadsPerBlock = kThreadsPerBlock;
  p->maxThreadsPerMultiProcessor = kThreadsPerProcessor;
  p->maxBlocksPerMultiProcessor = 32;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = kThreadsPerBlock;
  p->maxThreadsDim[2] = kDepth;
  p->maxGridSize[0] = kLargestGrid;
  p->maxGridSize[1] = p->maxGridSize[2] = kLargestGridYZ;
  p->sharedMemPerBlock = kSharedMemory;
  p->sharedMemPerBlockOptin = kSharedMemoryOptIn;
  p->sharedMemPerMultiprocessor = 233472;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->totalConstMem = 65536;
  p->textureAlignment = 512;
  p->l2CacheSize = 50 << 20;
  p->memoryBusWidth = 5120;
  p->pciBusID = physical(device) + 1;
  p->concurrentKernels = 1;
  p->asyncEngineCount = 3;
  p->unifiedAddressing = 1;
  p->cooperativeLaunch = 1;
  std::memset(p->uuid.bytes, 0x51 + physical(device), sizeof p->uuid.bytes);
  return cudaSuccess;
}

API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (cudaGetDeviceProperties(&p, device) != cudaSuccess) return cudaErrorInvalidDevice;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = p.maxThreadsPerMultiProcessor;
      break;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(p.sharedMemPerBlockOptin);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = static_cast<int>(p.sharedMemPerBlock);
      break;
    case cudaDevAttrMaxGridDimX:
      *value = p.maxGridSize[0];
      break;
    case cudaDevAttrMaxGridDimY:
      *value = p.maxGridSize[1];
      break;
    case cudaDevAttrMaxGridDimZ:
      *value = p.maxGridSize[2];
      break;
    case cudaDevAttrMaxBlockDimX:
      *value = p.maxThreadsDim[0];
      break;
    case cudaDevAttrMaxBlockDimY:
      *value = p.maxThreadsDim[1];
      break;
    case cudaDevAttrMaxBlockDimZ:
      *value = p.maxThreadsDim[2];
      break;
    case cudaDevAttrUnifiedAddressing:
      *value = p.unifiedAddressing;
      break;
    default:
      note("attribute " + std::to_string(attribute) + " is said to be 0");
      *value = 0;
  }
  return cudaSuccess;
}

API cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", physical(device) + 1);
  return cudaSuccess;
}
API cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!exists(device) || !exists(peer)) return fail(cudaErrorInvalidDevice);
  *can = device != peer && std::atoi(setting("SIMGPU_ALONE", "-1")) != device;
  return cudaSuccess;
}
API cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
API cudaError_t cudaDriverGetVersion(int* version) {
  *version = machine().devices > 0 ? CUDART_VERSION : 0;
  return cudaSuccess;
}
API cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

API cudaError_t cudaDeviceSynchronize() {
  Machine& m = machine();
  Lock lock(m.mutex);
  for (const CapturePtr& capture : m.captures) {
    for (const StreamState* stream : capture->streams) {
      if (stream->device == current_device) {
        invalidate(capture, "cudaDeviceSynchronize");
        return fail(cudaErrorStreamCaptureUnsupported);
      }
    }
  }
  host_waits();
  drain(current_device, lock);
  return cudaSuccess;
}

// ---- errors

API const char* cudaGetErrorName(cudaError_t error) {
  for (const Named& named : kErrors)
    if (named.error == error) return named.name;
  return "an error without a name here";
}
API const char* cudaGetErrorString(cudaError_t error) {
  for (const Named& named : kErrors)
    if (named.error == error) return named.text;
  return "an error without a text here";
}
API cudaError_t cudaGetLastError() {
  return last_error(/*forget=*/true);
}
API cudaError_t cudaPeekAtLastError() {
  return last_error(/*forget=*/false);
}

// ---- kernels

API void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API char __cudaInitModule(void**) {
  return 1;
}
API void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*,
                                dim3*, int*) {
  machine().kernels[host] = name;
}
API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
API unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) {
  return 0;
}
API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  *grid = *block = dim3{1, 1, 1};
  *shared = 0;
  *static_cast<void**>(stream) = nullptr;
  return cudaSuccess;
}
API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return cudaSuccess;
}
API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  refuse_kernel(kernel);
}
API cudaError_t cudaLaunchKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  refuse_kernel(kernel);
}
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void* kernel, void**) {
  refuse_kernel(kernel);
}
API cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3, dim3, void**, size_t, cudaStream_t) {
  refuse_kernel(kernel);
}
API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  std::memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = kThreadsPerBlock;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = 90;
  return cudaSuccess;
}
API cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 2;
  return cudaSuccess;
}
API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int, size_t,
                                                                       unsigned) {
  *blocks = 2;
  return cudaSuccess;
}

// ---- the driver, of which LibTorch asks for a few entries

API cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** entry, unsigned,
                                                 unsigned long long,
                                                 cudaDriverEntryPointQueryResult* result) {
  *entry = std::strcmp(symbol, "cuGetErrorString") == 0 ? reinterpret_cast<void*>(&text_of)
                                                        : reinterpret_cast<void*>(&not_supported);
  if (result != nullptr) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
