# Every version that bnlab pins, for the other scripts to source. What comes from Debian (compiler, CMake, header
# libraries) has the version of the distribution: Debian 12, Ubuntu 24.04 or newer.
# shellcheck shell=bash disable=SC2034

CMAKE_AT_LEAST=3.25

TORCH_VERSION=2.11.0
MATPLOTLIB_VERSION=3.10.7
NUMPY_VERSION=2.4.6
UV_VERSION=0.13.9                  # installs the wheels
CLANG_FORMAT_VERSION=19.1.7        # its major version decides the layout

CUDA_VERSION=13.0                  # the one that this torch wheel was built with
CUDA_TOOLKIT_WHEEL_VERSION=13.0.2
CUDA_ARCHITECTURES="8.0;9.0;10.0;12.0+PTX"  # what BNLAB_CUDA_ARCHITECTURES=all compiles for

# Other implementations of networks, which tests/peers compares with, and all that they import beside the above.
PEERS="torchvision==0.26.0 segmentation-models-pytorch==0.6.0 safetensors==0.8.0 timm==1.0.31 huggingface-hub==0.36.2
  pyyaml==6.0.3 tqdm==4.70.1 requests==2.34.2 urllib3==2.8.0 idna==3.20 charset-normalizer==3.5.2 certifi==2026.10.18"

# Programs that read what bnlab writes, for tests/readers and tests/python, with what they import.
READERS="tensorboard==2.21.0 protobuf==7.36.2 absl-py==2.5.1 jsonschema==4.26.0 attrs==26.1.0 referencing==0.37.0
  rpds-py==2026.9.1 jsonschema-specifications==2025.9.1 pandas==3.1.1"
