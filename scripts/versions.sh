# Every version that bnlab pins, for the other scripts to source. What comes from Debian (compiler, CMake, header
# libraries) has the version of the distribution: Debian 12, Ubuntu 24.04 or newer. scripts/lock.sh writes from these lines
# which wheels are fetched, all that they need included.
# shellcheck shell=bash disable=SC2034

CMAKE_AT_LEAST=3.25
TORCH_VERSION=${BNLAB_TORCH_VERSION:-2.11.0}
CUDA_ARCHITECTURES="8.0;9.0;10.0;12.0+PTX"  # what BNLAB_CUDA_ARCHITECTURES=all compiles for

UV="uv==0.13.9"                    # installs the wheels
LAYOUT_AND_FIGURES="matplotlib==3.10.7 numpy==2.4.6 clang-format==19.1.7"  # clang-format's major version decides the layout

# For tests: other implementations of networks, and programs that read what bnlab writes.
PEERS="torchvision segmentation-models-pytorch==0.6.0 safetensors==0.8.0 timm==1.0.31 huggingface-hub==0.36.2"
READERS="tensorboard==2.21.0 jsonschema==4.26.0 pandas==3.1.1"

LOCK=scripts/wheels/torch-$TORCH_VERSION.lock
CUDA_VERSION=$(sed -n 's/^cuda-toolkit==\([0-9]*\.[0-9]*\).*/\1/p' "$LOCK" 2>/dev/null || true)  # of the toolkit that this torch needs
