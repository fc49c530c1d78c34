# Every version that bnlab pins, for the other scripts to source. What comes from Debian (compiler, CMake, header
# libraries) has the version of the distribution: Debian 12, Ubuntu 24.04 or newer.
# shellcheck shell=bash disable=SC2034

CMAKE_AT_LEAST=3.25

TORCH_VERSION=2.11.0
MATPLOTLIB_VERSION=3.10.7
NUMPY_VERSION=2.4.6
CLANG_FORMAT_VERSION=14.0.6        # its major version decides the layout

CUDA_VERSION=13.0                  # the one that this torch wheel was built with
CUDA_TOOLKIT_WHEEL_VERSION=13.0.2
CUDA_ARCHITECTURES="8.0;9.0+PTX"   # what BNLAB_CUDA_ARCHITECTURES=all compiles for; the first where there is no GPU
