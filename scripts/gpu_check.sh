#!/usr/bin/env bash
# Checks and measures bnlab on a machine with a GPU. Builds first; then come the parts, each of which takes at most nine
# minutes and can be called alone. A part that was cut short goes on when it is called again, with the runs that have no
# record yet or failed.
#   scripts/gpu_check.sh [part...]      all parts, or some of these:
#     tests       the tests that need a GPU
#     sanitize    the kernels' tests under compute-sanitizer: memcheck, racecheck, initcheck, synccheck
#     verify      every strategy on the GPU against the float64 reference
#     bench       training steps under every strategy, beside eager PyTorch
#     bandwidth   what share of the copy bandwidth the kernels reach
#     tradeoff    experiments/overviews/tradeoff_gpu.json: throughput against accuracy
#   scripts/gpu_check.sh sanitize TOOL  one tool of compute-sanitizer, which then has all the time
# After a change of the code, remove the folder of results first: records of the old build would be taken for new ones.
# Records, logs and the table go to results/gpu_check, or to the folder that BNLAB_GPU_RESULTS names. No network is
# needed where BNLAB_PYTHON names a Python that has torch. Exit status 0 if every part went well.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh

readonly PARTS="tests sanitize verify bench bandwidth tradeoff"
readonly TOOLS="memcheck racecheck initcheck synccheck"
out=results/gpu_check
[ -z "${BNLAB_GPU_RESULTS:-}" ] || out=$(cd "$caller" && realpath -m "$BNLAB_GPU_RESULTS")
bin=build/release

# row VERDICT TEXT: a line of the table for the part that is running.
row() { printf '%s\t%s\t%s\n' "$part" "$1" "$2" >>"$out/$part.tsv"; }

# limited SECONDS LOG COMMAND...: runs the command with its output in the log; sets $status (124: the time was over).
limited() {
  local seconds=$1 log=$2
  shift 2
  talk "  $* (log: $log)"
  status=0
  timeout --kill-after=20 "$seconds" "$@" >"$log" 2>&1 &
  job=$!
  wait $job || status=$?
  job=
}
job=
trap '[ -z "$job" ] || kill "$job"; exit 130' INT TERM

# Prints what $status means.
verdict() {
  case $status in
    0) echo ok ;;
    124 | 137) echo unfinished ;;
    *) echo FAILED ;;
  esac
}

count() { grep -c "$1" "$2" || true; }

# run_tests NAME SECONDS FILTER
run_tests() {
  local log=$out/$1.log passed said
  limited "$2" "$log" $bin/tests/torch_tests --gtest_filter="$3"
  passed=$(count '^\[       OK \]' "$log")
  said=$(verdict)
  [ "$said$passed" != ok0 ] || said=skipped
  row "$said" "$1: $passed passed, $(count '^\[  FAILED  \].*ms)$' "$log") failed, $(
    count '^\[  SKIPPED \].*ms)$' "$log") skipped; $log"
}

part_tests() {
  run_tests kernels 150 '*/cuda'
  run_tests training 100 '*/CudaTraining.*:CudaTrainingOfOptions.*'
  run_tests strategies 200 '*/Cuda.*'
  run_tests two_ranks_on_one_gpu 80 'CudaSharedGpu.*'  # its own process: CUDA reads its variables once
}

part_sanitize() {
  local tools=("$@") tool
  [ ${#tools[@]} -gt 0 ] || read -ra tools <<<"$TOOLS"
  local sanitizer
  sanitizer=$(PATH=$PATH:${CUDA_PATH:-}/bin:/usr/local/cuda/bin command -v compute-sanitizer) || {
    row lacking "no compute-sanitizer; NVIDIA's package cuda-sanitizer-${CUDA_VERSION/./-} has it: install that, or put \
the folder of compute-sanitizer into PATH"
    return
  }
  local help
  help=$("$sanitizer" --help 2>&1 || true)
  for tool in "${tools[@]}"; do
    local log=$out/$tool.log only_ours=()
    # What LibTorch's kernels write counts as written only if they are watched, too.
    [[ $tool = initcheck || $help != *--kernel-regex* ]] || only_ours=(--kernel-regex kns=bnlab)
    # Without LibTorch's cache of memory every tensor is an allocation that the tool can watch.
    limited $((520 / ${#tools[@]})) "$log" env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$sanitizer" --tool "$tool" \
      --error-exitcode 9 ${only_ours[@]+"${only_ours[@]}"} $bin/tests/torch_tests --gtest_filter='*/cuda'
    row "$(verdict)" "$tool: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//'); $log"
    [ $status -ne 124 ] || row unfinished "scripts/gpu_check.sh sanitize $tool gives it all the time"
  done
}

part_verify() {
  limited 530 "$out/verify.log" $bin/bnlab verify --device cuda
  row "$(verdict)" "$(tail -n 1 "$out/verify.log"); $out/verify.log"
}

part_bench() {
  limited 530 "$out/bench.log" "$BNLAB_INTERPRETER" -u tests/bench/gpu_step_bench.py --device cuda --results "$out" \
    --program $bin/bnlab
  row "$(verdict)" "training steps; $out/bench.log"
  while IFS= read -r line; do
    [[ $line = *" ms"* ]] && row ok "$line" || row FAILED "$line"
  done < <(grep -E '^(float32|bfloat16), ' "$out/bench.log" || true)
}

part_bandwidth() {
  limited 300 "$out/bandwidth.jsonl" $bin/tests/bench/bandwidth_bench --device cuda --megabytes 256
  row "$(verdict)" "share of the copy bandwidth; $out/bandwidth.jsonl"
  [ $status -eq 0 ] || return 0
  while IFS= read -r line; do row ok "$line"; done < <("$BNLAB_INTERPRETER" - "$out/bandwidth.jsonl" <<'PYTHON'
import json, sys
for line in map(json.loads, open(sys.argv[1])):
    print(f"{line['kernel']:18} {line['dtype']:9} {line['layout']:14} {line['GB_per_s']:7.0f} GB/s   "
          f"{100 * line['share_of_copy']:4.0f} % of a copy")
PYTHON
  )
}

# Whether the NCCL that is loaded lets several ranks share a GPU.
nccl_takes_ranks_on_one_gpu() {
  local version
  version=$(sed -n 's/.*NCCL \([0-9.]*\).*/\1/p' "$out/machine.txt")
  [ -n "$version" ] && printf '2.30\n%s\n' "$version" | sort -V -C
}

part_tradeoff() {
  local spec=experiments/overviews/tradeoff_gpu.json
  if [ "$gpus" -eq 1 ] && nccl_takes_ranks_on_one_gpu; then
    limited 90 "$out/two_ranks.log" env NCCL_MULTI_RANK_GPU_ENABLE=1 $bin/bnlab run experiments/overviews/quickstart.json \
      --ranks 2 --device cuda --only seed=0 --redo failed --results "$out"
    row "$(verdict)" "two ranks on one GPU, whose speed is emulated; $out/quickstart"
  fi
  limited 420 "$out/tradeoff.log" $bin/bnlab run $spec --device cuda --redo failed --results "$out"
  row "$(verdict)" "$(count '^ok ' "$out/tradeoff.log") runs ended well in this call; $out/tradeoff_gpu"
  [ $status -ne 124 ] || row unfinished "scripts/gpu_check.sh tradeoff goes on with the other runs"
  $bin/bnlab report $spec --results "$out" >"$out/tradeoff.txt" 2>>"$out/tradeoff.log" &&
    row ok "the table: $out/tradeoff.txt" || row FAILED "no report; $out/tradeoff.log"
}

# What is asked for, and whether this machine has what it takes.
parts=() tools=()
for name in "$@"; do
  case " $PARTS | $TOOLS " in
    *" $name "*"|"*) parts+=("$name") ;;
    *"|"*" $name "*) tools+=("$name") ;;
    *)
      sed -n '2,17s/^# \{0,1\}//p' scripts/gpu_check.sh >&2
      exit 2
      ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || [ ${#tools[@]} -eq 0 ] || parts=(sanitize)
[ ${#parts[@]} -gt 0 ] || read -ra parts <<<"$PARTS"

load_settings
source scripts/versions.sh
[ -n "$BNLAB_TOOLKIT" ] ||
  fail "this checkout was set up without CUDA; BNLAB_CUDA_TOOLKIT=auto scripts/gpu_check.sh sets it up with CUDA"
mkdir -p "$out"
gpus=$("$BNLAB_INTERPRETER" -c 'import torch; print(torch.cuda.device_count())' 2>"$out/machine.txt") ||
  fail "$BNLAB_INTERPRETER cannot import torch; name a Python that can in BNLAB_PYTHON"
[ "$gpus" -gt 0 ] ||
  fail "no GPU is visible, so nothing can be checked here; \`nvidia-smi\` must list one, and a driver of CUDA \
$CUDA_VERSION or later must be installed"
BNLAB_CUDA=on scripts/build.sh release bnlab torch_tests bandwidth_bench
$bin/bnlab doctor >"$out/machine.txt" || true
grep -E '^(CPU|LibTorch|GPUs|backends|          )' "$out/machine.txt" >&2 || true

for part in "${parts[@]}"; do
  started=$SECONDS
  talk "== $part"
  touch "$out/$part.tsv"
  if [ "$part" = sanitize ] && [ ${#tools[@]} -gt 0 ]; then
    for tool in "${tools[@]}"; do sed -i "/[\t ]${tool}[: ]/d" "$out/$part.tsv"; done  # the other tools' rows stay
  else
    : >"$out/$part.tsv"
  fi
  "part_$part" ${tools[@]+"${tools[@]}"}
  talk "   $((SECONDS - started)) s"
done

# All parts that have ever run are in the table; the exit status is that of this call.
for part in $PARTS; do
  [ ! -e "$out/$part.tsv" ] || cat "$out/$part.tsv"
done | awk -F '\t' '{ printf "%-10s %-10s %s\n", $1, $2, $3 }' | tee "$out/table.txt"
for part in "${parts[@]}"; do
  ! grep -qP '\t(FAILED|lacking|unfinished)\t' "$out/$part.tsv" || exit 1
done
