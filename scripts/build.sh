#!/usr/bin/env bash
# Builds one preset of CMakePresets.json, all targets or the named ones, in build/<preset>; sets up and configures
# first where needed.
#   scripts/build.sh [release|debug|asan|tsan] [target...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh

preset=${1:-release}
shift || true
folder=build/$preset
load_settings

# As many jobs as cores, and one per 2 GiB: a file with LibTorch's headers takes up to 1.5 GiB to compile.
available_gib=$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
jobs=$((available_gib / 2 < $(nproc) ? available_gib / 2 : $(nproc)))
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$((jobs > 0 ? jobs : 1))}

# With these ccache, where present, caches files that use a precompiled header too.
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

# Other settings than those of the last configuration make it void: a compiler cannot be exchanged in place.
if [ ! -e "$folder/build.ninja" ] || ! cmp -s build/toolchain.env "$folder/toolchain.env"; then
  mkdir -p "$folder"
  log=$folder/configure.log
  : >"$log"
  cure="scripts/setup.sh --check says whether something is missing."
  stage "Configuring $folder" cmake --fresh --preset "$preset" \
    -DBNLAB_CUDA="$BNLAB_CUDA" -DPython3_EXECUTABLE="$BNLAB_INTERPRETER"
  grep '^-- bnlab' "$log" >&2 || true  # what the configuration chose, and why
  cp build/toolchain.env "$folder/toolchain.env"
fi

talk "Building $folder, $CMAKE_BUILD_PARALLEL_LEVEL files at a time; the first time takes some minutes."
export NINJA_STATUS='[%f/%t, %es] '
cmake --build --preset "$preset" ${1:+--target "$@"} >&2
