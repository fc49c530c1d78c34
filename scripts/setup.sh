#!/usr/bin/env bash
# Makes a bare Debian or Ubuntu machine able to build bnlab, and writes build/toolchain.env, which says where things
# are. Idempotent: what is there already is left alone. What CUDA kernels and PyTorch need beyond the rest (2.4 GB) is
# fetched where there is a GPU or BNLAB_CUDA=on asks for them. scripts/README.md describes the variables BNLAB_CUDA,
# BNLAB_CUDA_TOOLKIT, BNLAB_CUDA_ARCHITECTURES, BNLAB_PYTHON and CMAKE_PREFIX_PATH that force other ways.
#   scripts/setup.sh              sets up
#   scripts/setup.sh --check      only says what is missing; exit status 3 if anything is
#   scripts/setup.sh --print-env  sets up, then prints the settings that build.sh uses
set -euo pipefail
manual() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }
mode=${1:-}
case "$mode" in
  "" | --check | --print-env) ;;
  --help | -h) manual; exit 0 ;;
  *) echo "setup.sh: unknown option $mode" >&2; manual >&2; exit 2 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/versions.sh
source scripts/stages.sh
[ -e "$LOCK" ] || fail "there is no $LOCK: BNLAB_TORCH_VERSION=$TORCH_VERSION scripts/lock.sh writes it, with the hashes of today"

choice=${BNLAB_CUDA_TOOLKIT:-auto}
case "$choice" in
  auto | system | wheels | none) ;;
  *) echo "BNLAB_CUDA_TOOLKIT: expected auto, system, wheels or none, got $choice" >&2; exit 2 ;;
esac

# --- what is missing --------------------------------------------------------------------------------------------

has_header() {  # found where compilers look, or below CMAKE_PREFIX_PATH
  local folder
  IFS=':;' read -ra folders <<<"/usr:/usr/local:${CMAKE_PREFIX_PATH:-}"
  for folder in "${folders[@]}"; do
    [ -n "$folder" ] && [ -e "$folder/include/$1" ] && return 0
  done
  return 1
}

# The Debian packages whose purpose nothing on this machine serves yet, in $missing.
find_missing_packages() {
  missing=()
  local need package
  while read -r need package; do
    case "$need" in
      command:*) command -v "${need#command:}" >/dev/null || missing+=("$package") ;;
      header:*) has_header "${need#header:}" || missing+=("$package") ;;
      file:*) [ -e "${need#file:}" ] || missing+=("$package") ;;
    esac
  done <<END
command:g++ g++
command:cmake cmake
command:ninja ninja-build
header:nlohmann/json.hpp nlohmann-json3-dev
header:xxhash.h libxxhash-dev
header:boost/math/distributions/students_t.hpp libboost-math-dev
header:gtest/gtest.h libgtest-dev
header:benchmark/benchmark.h libbenchmark-dev
END
  # Comfort, and what a virtual environment needs: not asked for where BNLAB_PYTHON says that this machine is special.
  [ -n "${BNLAB_PYTHON:-}" ] && return
  command -v git >/dev/null || missing+=(git)
  command -v ccache >/dev/null || missing+=(ccache)
  has_header jpeglib.h || missing+=(libjpeg-dev)
  has_header png.h || missing+=(libpng-dev)
  [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
  [ -x .venv/bin/python ] || /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
}

# A toolkit of the right version outside Python's folders: its root in $system_toolkit, or nothing.
find_system_toolkit() {
  system_toolkit=
  local nvcc root
  for nvcc in "${CUDACXX:-}" "${CUDA_HOME:-}/bin/nvcc" "$(command -v nvcc || true)" \
      "/usr/local/cuda-$CUDA_VERSION/bin/nvcc" /usr/local/cuda/bin/nvcc; do
    [ -x "$nvcc" ] || continue
    nvcc=$(readlink -f "$nvcc")
    root=${nvcc%/bin/nvcc}
    [[ "$root" == */site-packages/* ]] && continue
    [ -e "$root/include/cublas_v2.h" ] || continue
    [[ "$("$nvcc" --version)" == *"release $CUDA_VERSION,"* ]] || continue
    system_toolkit=$root
    return
  done
}

find_torch() {  # the folder of torch in a Python, or nothing; importing torch would take seconds
  "$1" -c 'from importlib.util import find_spec
found = find_spec("torch")
print(found.submodule_search_locations[0] if found else "")' 2>/dev/null || true
}

# The groups of scripts/wheels/*.lock that this machine needs. Of torch's wheel libtorch_cpu.so is linked, which needs two of
# CUDA's wheels; import torch needs them all.
wanted_wheels() {
  echo first
  [ -n "$lean" ] || echo cuda
  [ -n "$lean" ] || [ "$toolkit" != wheels ] || echo nvcc
  sha256sum <"$LOCK" | cut -d' ' -f1
}

installed_wheels() { cat .venv/bnlab-wheels 2>/dev/null || true; }

has_wheels() {  # all wanted ones of this lock; more may be there besides
  local word
  for word in "${wheels[@]}"; do
    [[ " $(installed_wheels) " == *" $word "* ]] || return 1
  done
}

# --- what is installed ------------------------------------------------------------------------------------------

install_packages() {
  local root_command=()
  if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }; }; then
      root_command=(sudo)
    else
      fail "these Debian packages are missing, and installing them needs root. Run this line, then call again:
  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}"
    fi
  fi
  command -v apt-get >/dev/null || fail "no apt-get here. Install what these Debian packages hold by other means, or
name the folder that has it in CMAKE_PREFIX_PATH: ${missing[*]}"
  cure="Is there a network? Without one, name a folder with the libraries in CMAKE_PREFIX_PATH and a Python that has
torch in BNLAB_PYTHON (scripts/README.md)."
  stage "Debian packages: list" "${root_command[@]}" apt-get update
  stage "Debian packages: ${#missing[@]} to install" "${root_command[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}"
}

# install_wheels GROUP...: uv takes half of pip's time, but reads none of pip's settings: where these name another index or
# a proxy, or uv fails, pip does it. What uv fetches lies in build/wheels, beside .venv, so that nothing is copied.
install_wheels() {
  local pip=(.venv/bin/python -m pip) quiet=(--no-input --disable-pip-version-check --progress-bar off --no-compile)
  local locked=(--no-deps --require-hashes -r)
  locked_wheels uv >build/uv.txt
  locked_wheels "$@" >build/wheels.txt
  if ! "${pip[@]}" config list | grep -E 'index|proxy' && "${pip[@]}" install "${quiet[@]}" "${locked[@]}" build/uv.txt &&
      .venv/bin/uv pip install --python .venv/bin/python --cache-dir build/wheels --no-progress "${locked[@]}" build/wheels.txt; then
    rm -rf build/wheels
  else
    ! grep -q 'Hash mismatch' "$log" || return 1
    "${pip[@]}" install "${quiet[@]}" --no-cache-dir "${locked[@]}" build/wheels.txt
  fi
}

make_environment() {
  cure="Delete .venv and call again."
  [ -x .venv/bin/python ] || stage "Python environment .venv" /usr/bin/python3 -m venv .venv
  cure="Is there a network and room for ${lean:-6} GB? If so, delete .venv and call again. Without a network, name a Python
that has torch in BNLAB_PYTHON (scripts/README.md)."
  if [ -n "$lean" ]; then
    stage "Python wheels: torch $TORCH_VERSION without CUDA (0.6 GB to fetch)" install_wheels first
  else
    has_gpu || talk "Without a GPU, most of these wheels serve tests: of the CUDA kernels, which run on simulated GPUs, and of what
PyTorch in Python computes (peers, python_twins, in_pytorch, embedding). BNLAB_CUDA=off leaves both out."
    stage "Python wheels: torch $TORCH_VERSION and others (3 GB to fetch)" install_wheels "${wheels[@]::${#wheels[@]}-1}"
  fi
  echo "${wheels[*]}" >.venv/bnlab-wheels  # last, so that its presence means that all of the above was done
}

# The toolkit's wheels lack the names that CMake and the linker look for.
complete_toolkit_wheels() {
  local root=$1 library
  [ -e "$root/lib64" ] || ln -s lib "$root/lib64"
  for library in "$root"/lib/lib*.so.*; do
    [ -e "${library%%.so.*}.so" ] || ln -s "$(basename "$library")" "${library%%.so.*}.so"
  done
}

# The compute capabilities that CUDA sources are compiled for, as CMake writes them: those of this machine's GPUs by
# default. A login node of a cluster sees none, and its compute nodes should not have to translate what was compiled
# for others; elsewhere without a GPU the first will do. "8.6;9.0+PTX" becomes "86-real;90".
cuda_architectures() {
  local wanted=${BNLAB_CUDA_ARCHITECTURES:-native} found submit
  case "$wanted" in
    all) wanted=$CUDA_ARCHITECTURES ;;
    native)
      found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -Ex '[0-9]+\.[0-9]+' |
        sort -uV | paste -sd ';') || true
      for submit in sbatch qsub bsub; do
        [ -n "$found" ] || ! command -v "$submit" >/dev/null || found=${CUDA_ARCHITECTURES%+PTX}
      done
      wanted=${found:-${CUDA_ARCHITECTURES%%;*}}+PTX ;;  # with PTX the program also runs on newer GPUs
  esac
  sed -E 's/\.//g; s/([0-9]+)(;|$)/\1-real\2/g; s/\+PTX//g' <<<"$wanted"
}

write_settings() {
  local torch_folder=$1 toolkit_root=$2 prefixes=$1/share/cmake prefix
  IFS=':;' read -ra given <<<"${CMAKE_PREFIX_PATH:-}"
  for prefix in "${given[@]}"; do
    [[ -z "$prefix" || ":$prefixes:" == *":$prefix:"* ]] || prefixes+=:$prefix
  done
  {
    echo "# Written by scripts/setup.sh; source it before calling cmake by hand."
    printf 'export %s=%q\n' BNLAB_INTERPRETER "$interpreter" CMAKE_PREFIX_PATH "$prefixes" BNLAB_TOOLKIT "$toolkit_root" \
      BNLAB_LEAN "$lean"
    [ -z "$toolkit_root" ] ||
      printf 'export %s=%q\n' CUDACXX "$toolkit_root/bin/nvcc" CUDA_PATH "$toolkit_root" \
        CUDAToolkit_ROOT "$toolkit_root" CUDAARCHS "$(cuda_architectures)"
  } >build/toolchain.env.new
  cmp -s build/toolchain.env.new build/toolchain.env ||
    talk "Settings written to build/toolchain.env (CUDA toolkit: ${toolkit_root:-none})."
  mv build/toolchain.env.new build/toolchain.env
}

# --- one after the other ----------------------------------------------------------------------------------------

mkdir -p build
log=build/setup.log
exec 9>build/setup.lock
flock -n 9 || { talk "Another set-up is running here; waiting for it."; flock 9; }
: >"$log"

toolkit=$choice
find_system_toolkit
if [ "$choice" = auto ]; then
  if [ -n "$system_toolkit" ]; then toolkit=system; else toolkit=wheels; fi
fi
lean=  # GB of disk where the wheels for CUDA are left out; once they are there, they stay
if [ -z "${BNLAB_PYTHON:-}" ] && ! wants_cuda && [[ "$(installed_wheels)" != *cuda* ]]; then
  lean=2
fi
find_missing_packages
read -ra wheels <<<"$(wanted_wheels | tr '\n' ' ')"

if [ "$mode" = --check ]; then
  lacking=0
  say_missing() { echo "missing: $1"; lacking=3; }
  [ ${#missing[@]} -eq 0 ] || say_missing "Debian packages ${missing[*]}"
  if [ -n "${BNLAB_PYTHON:-}" ]; then
    [ -n "$(find_torch "$BNLAB_PYTHON")" ] || say_missing "torch in $BNLAB_PYTHON"
  elif ! has_wheels; then
    say_missing "Python wheels ${wheels[*]::${#wheels[@]}-1} of $LOCK in .venv"
  fi
  [ "$toolkit" != system ] || [ -n "$system_toolkit" ] || say_missing "a CUDA toolkit $CUDA_VERSION on this machine"
  [ $lacking -ne 0 ] || echo "nothing is missing"
  exit $lacking
fi

[ ${#missing[@]} -eq 0 ] || install_packages
installed_cmake=$(cmake --version | sed -n 's/^cmake version //p')
[ "$(printf '%s\n' "$CMAKE_AT_LEAST" "$installed_cmake" | sort -V | head -n 1)" = "$CMAKE_AT_LEAST" ] ||
  fail "CMake $CMAKE_AT_LEAST or newer is needed, found $installed_cmake (Debian 12 and Ubuntu 24.04 have it)"

if [ -n "${BNLAB_PYTHON:-}" ]; then
  interpreter=$(command -v "$BNLAB_PYTHON") || fail "BNLAB_PYTHON: no such program: $BNLAB_PYTHON"
  interpreter=$(realpath -s "$interpreter")  # keeps the link by which a virtual environment is recognised
else
  has_wheels || make_environment
  interpreter=$PWD/.venv/bin/python
fi
torch_folder=$(find_torch "$interpreter")
[ -e "$torch_folder/share/cmake/Torch/TorchConfig.cmake" ] ||
  fail "no torch with C++ headers and CMake files in $interpreter; expected torch $TORCH_VERSION"
grep -q "__version__ = '$TORCH_VERSION" "$torch_folder/version.py" ||
  talk "Warning: torch $TORCH_VERSION was expected; this one says $(grep '^__version__ =' "$torch_folder/version.py")."

torch_cuda=$(sed -n "s/^cuda.*= '\(.*\)'/\1/p" "$torch_folder/version.py")
wheel_toolkit=$(dirname "$torch_folder")/nvidia/cu${CUDA_VERSION%%.*}
[ -n "$torch_cuda" ] && [ -z "$lean" ] || toolkit=none  # a torch without CUDA, or without what that needs
case "$toolkit" in
  system)
    [ -n "$system_toolkit" ] || fail "BNLAB_CUDA_TOOLKIT=system: no CUDA toolkit $CUDA_VERSION found through CUDACXX,
CUDA_HOME, PATH or in /usr/local/cuda. BNLAB_CUDA_TOOLKIT=wheels fetches one beside torch."
    toolkit_root=$system_toolkit ;;
  wheels)
    [ -x "$wheel_toolkit/bin/nvcc" ] || fail "no nvcc in $wheel_toolkit. Install
the wheels "nvcc" of $LOCK there, install a CUDA toolkit $CUDA_VERSION, or build without CUDA: BNLAB_CUDA_TOOLKIT=none"
    complete_toolkit_wheels "$wheel_toolkit"
    toolkit_root=$wheel_toolkit ;;
  none) toolkit_root= ;;
esac
write_settings "$torch_folder" "$toolkit_root"
[ "$mode" != --print-env ] || cat build/toolchain.env
