// What LibTorch links of NCCL beside the rest.
#include "tests/simgpu/absent.hpp"

ABSENT(ncclCommInitAll)
ABSENT(ncclCommShrink)
ABSENT(ncclCommSplit)
ABSENT(ncclCommWindowDeregister)
ABSENT(ncclCommWindowRegister)
ABSENT(ncclDevCommCreate)
ABSENT(ncclDevCommDestroy)
ABSENT(ncclGroupSimulateEnd)
ABSENT(ncclRedOpCreatePreMulSum)
ABSENT(ncclRedOpDestroy)
