// LibTorch's wheel ships ProcessGroupGloo.hpp but not Gloo's own headers; c10d's class layouts need only
// these names. Gloo itself is inside libtorch_cpu.
#pragma once
