// Sums and means of elements, as the stand-in for NCCL makes them: one rank after the other, rounded to the
// elements' type each time.
#pragma once

#include <nccl.h>

#include <cstddef>

namespace simgpu {

size_t bytes_of(ncclDataType_t type);  // of one element
void reduce_into(void* to, const void* from, size_t count, ncclDataType_t type, ncclRedOp_t operation);
void divide(void* elements, size_t count, ncclDataType_t type, int by);

}  // namespace simgpu
