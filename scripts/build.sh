#!/usr/bin/env bash
# Builds one preset of CMakePresets.json, all targets or the named ones, in build/<preset>; sets up and configures
# first where needed. The CUDA kernels are built where this machine has a GPU, or where BNLAB_CUDA=on asks for them; a
# build folder that has them keeps them.
#   scripts/build.sh [release|debug|asan|tsan] [target...]
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh

preset=${1:-release}
shift || true
folder=build/$preset
load_settings
# What was built beside bnlab stays of its revision.
[[ " $* " != *" bnlab "* || ! -e $folder/bnlab-more ]] || set -- "$@" bnlab-more

# As many jobs as cores, and one per 2 GiB: a file with LibTorch's headers takes up to 1.5 GiB to compile.
available_gib=$(awk '/^MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)
jobs=$((available_gib / 2 < $(nproc) ? available_gib / 2 : $(nproc)))
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$((jobs > 0 ? jobs : 1))}

# With these ccache, where present, caches files that use a precompiled header too.
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime

options=(-DPython3_EXECUTABLE="$BNLAB_INTERPRETER" -UCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit)
has() { grep -qs "^BNLAB_CUDA:BOOL=$1$" "$folder/CMakeCache.txt"; }
kernels=OFF
if wants_cuda || { [[ ${BNLAB_CUDA:-auto} != [oO][fF][fF] ]] && has ON; }; then
  if [ -n "$BNLAB_TOOLKIT" ]; then kernels=ON; else
    talk "No CUDA toolkit was set up, so no CUDA kernels are built; BNLAB_CUDA=on BNLAB_CUDA_TOOLKIT=auto scripts/setup.sh finds or fetches one."
  fi
fi

# Other settings than those of the last configuration make it void: a compiler cannot be exchanged in place. One for CUDA
# can be added, and the kernels can be left out: the rest stays as it is.
settings() { if grep -qs '^CMAKE_CUDA_COMPILER:' "$folder/CMakeCache.txt"; then cat "$1"; else grep -vE ' (CUDA\w*|BNLAB_(TOOLKIT|LEAN))=' "$1"; fi; }
if ! cmp -s <(settings build/toolchain.env) <(settings "$folder/toolchain.env" 2>/dev/null); then
  options+=(--fresh)
elif [ -e "$folder/build.ninja" ] && has $kernels; then
  options=()
fi
if [ ${#options[@]} -gt 0 ]; then
  mkdir -p "$folder"
  rm -f "$folder/toolchain.env"
  log=$folder/configure.log
  : >"$log"
  cure="scripts/setup.sh --check says whether something is missing."
  stage "Configuring $folder" cmake --preset "$preset" -DBNLAB_CUDA=$kernels "${options[@]}"
  grep '^-- bnlab' "$log" >&2 || true  # what the configuration chose, and why
  cp build/toolchain.env "$folder/toolchain.env"
fi

# Of ninja's lines those that count become one, in place on a terminal, else one each half minute. All others, such as
# warnings and errors, stay.
counted() {
  local line next=1 open=
  while IFS= read -r line; do
    if [[ ! $line =~ ^\[([0-9]+)/([0-9]+),\ ([0-9]+) ]]; then
      printf '%s\n' "$open$line"
      open=
    elif [ -t 2 ]; then
      printf '\r  %s of %s steps, %s s' "${BASH_REMATCH[@]:1}"
      open=$'\n'
    elif ((BASH_REMATCH[3] >= next || BASH_REMATCH[1] == BASH_REMATCH[2])); then
      printf '  %s of %s steps, %s s\n' "${BASH_REMATCH[@]:1}"
      next=$((BASH_REMATCH[3] + 30))
    fi
  done
  printf %s "$open"
} >&2

talk "Building $folder, $CMAKE_BUILD_PARALLEL_LEVEL files at a time; the first time takes some minutes."
NINJA_STATUS='[%f/%t, %e] ' cmake --build --preset "$preset" ${1:+--target "$@"} 2>&1 | counted
