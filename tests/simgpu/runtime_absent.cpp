// What LibTorch links of the CUDA runtime beside the rest.
#include "tests/simgpu/absent.hpp"

ABSENT(cudaDeviceGetDefaultMemPool)
ABSENT(cudaFreeAsync)
ABSENT(cudaGetSymbolAddress)
ABSENT(cudaIpcCloseMemHandle)
ABSENT(cudaIpcGetEventHandle)
ABSENT(cudaIpcGetMemHandle)
ABSENT(cudaIpcOpenEventHandle)
ABSENT(cudaIpcOpenMemHandle)
ABSENT(cudaMallocAsync)
ABSENT(cudaMemPoolGetAttribute)
ABSENT(cudaMemPoolSetAccess)
ABSENT(cudaMemPoolSetAttribute)
ABSENT(cudaMemPoolTrimTo)
ABSENT(cudaMemcpy2DAsync)
ABSENT(cudaMemcpyToSymbol)
// And Python's torch, which is otherwise content with the same entries.
ABSENT(cudaProfilerStart)
ABSENT(cudaProfilerStop)
ABSENT(cudaStreamGetPriority)
