#!/usr/bin/env bash
# Checks and measures bnlab on a machine with a GPU. Each part builds what it needs, takes at most nine
# minutes and can be called alone. A part that was cut short goes on when it is called again, with the runs
# that have no record yet or failed.
#   scripts/gpu_check.sh [part...]      all parts, in the order of their worth for one hour, or some of these:
#     first       a minute: one run, CUDA graphs, a resumed run, two ranks, each compared number by number
#     tests       the tests that need a GPU
#     lost        on two GPUs: a rank is killed, the run has to end and to name it
#     bench       training steps under every strategy, beside eager PyTorch
#     bandwidth   what share of the copy bandwidth the kernels reach
#     verify      every strategy on the GPU against the float64 reference
#     sanitize    small kernel tests under compute-sanitizer: memcheck, racecheck, initcheck, synccheck
#     tradeoff    experiments/overviews/tradeoff_gpu.json: throughput against accuracy
#   scripts/gpu_check.sh sanitize TOOL  one tool of compute-sanitizer, with all the time and all kernel tests
# Every machine and every revision of the code has a folder of its own in results/gpu_check, or in the folder
# that BNLAB_GPU_RESULTS names. It holds records, logs, machine.txt (driver, clocks, other users of the GPU)
# and table.txt, the page of verdicts, whose path is printed last. FOLDER.tar.gz beside it is all that, to be
# sent.
# BNLAB_GPU_CHECK_PROGRAMS=DIR takes bnlab, torch_tests (or simgpu_tests) and bandwidth_bench from DIR and
# builds nothing. With build/release/tests/simgpu the parts run on simulated GPUs, in small, within two
# minutes.
# No network is needed where BNLAB_PYTHON names a Python that has torch. Exit status 1 if something FAILED or
# is unfinished, else 0; what is skipped or lacking says why.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh

readonly PARTS="first tests lost bench bandwidth verify sanitize tradeoff"
readonly TOOLS="memcheck racecheck initcheck synccheck"
readonly DRIVER_AT_LEAST=580  # of CUDA 13
# Under a tool of compute-sanitizer a kernel takes up to 200 times as long: without the cases of many shapes.
readonly SMALL_TESTS='*/cuda:-*EqualTheirFormulasForEveryShape*:*ManySlicesInOneCall*'
declare -A seconds_of=([memcheck]=150 [racecheck]=170 [initcheck]=110 [synccheck]=90)
results=results/gpu_check
[ -z "${BNLAB_GPU_RESULTS:-}" ] || results=$(cd "$caller" && realpath -m "$BNLAB_GPU_RESULTS")
programs=${BNLAB_GPU_CHECK_PROGRAMS:-}
[ -z "$programs" ] || programs=$(cd "$caller" && realpath -m "$programs")

# row VERDICT TEXT: a line of the table for the part that is running. Paths in it start at the table's folder.
row() { printf '%s\t%s\t%s\n' "$part" "$1" "${2//"$out/"/}" >>"$out/$part.tsv"; }

# limited SECONDS LOG COMMAND...: runs the command, its output goes to the log; sets $status, 124 if cut short.
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

# build TARGET...: does nothing where the programs were given.
build() { [ -n "$programs" ] || BNLAB_CUDA=on scripts/build.sh release "$@"; }

# program NAME: its path; of the tests there are two names.
program() {
  local folder
  for folder in ${programs:-build/release build/release/tests build/release/tests/bench}; do
    [ ! -x "$folder/$1" ] || { echo "$folder/$1"; return; }
  done
  [ "$1" != torch_tests ] || program simgpu_tests
}

# short_runs PART: runs whose rows scripts/gpu_runs.py prints.
short_runs() {
  limited 500 "$out/$1.log" "$BNLAB_INTERPRETER" scripts/gpu_runs.py "$1" --program "$bnlab" --results "$out" \
    --gpus "$gpus" --nccl "${nccl:-0}"
  while IFS=$'\t' read -r said text; do row "$said" "$text"; done < <(grep -P '^(ok|FAILED|skipped)\t' "$out/$1.log" || true)
  grep -qP '^FAILED\t' "$out/$1.log" || [ $status -eq 0 ] || row "$(verdict)" "the runs broke off; $out/$1.log"
}

part_first() { short_runs first; }

part_lost() { short_runs lost; }

# run_tests NAME SECONDS FILTER
run_tests() {
  local log=$out/$1.log passed said why=
  limited "$2" "$log" "$(program torch_tests)" --gtest_filter="$3"
  passed=$(count '^\[       OK \]' "$log")
  said=$(verdict)
  if [ "$said$passed" = ok0 ]; then
    said=skipped why=$(grep -A 1 ': Skipped$' "$log" | sed -n 2p) || true
    why="; ${why:-no test has this name}"
  fi
  row "$said" "$1: $passed passed, $(count '^\[  FAILED  \].*ms)$' "$log") failed, $(
    count '^\[  SKIPPED \].*ms)$' "$log") skipped$why; $log"
}

part_tests() {
  build torch_tests
  [ -n "$(program torch_tests)" ] || { row skipped "$programs has no torch_tests"; return; }
  if [ $simulated = yes ]; then
    run_tests kernels 150 "$SMALL_TESTS"
    run_tests training 100 '*/CudaTraining.*/sync'
  else
    run_tests kernels 150 '*/cuda'
    run_tests training 100 '*/CudaTraining.*:CudaTrainingOfOptions.*'
    run_tests strategies 200 '*/Cuda.*'
  fi
  run_tests two_ranks_on_one_gpu 80 'CudaSharedGpu.*'  # its own process: CUDA reads its variables once
}

part_sanitize() {
  local tools=("$@") tool
  [ ${#tools[@]} -gt 0 ] || read -ra tools <<<"$TOOLS"
  [ $simulated = no ] || { row skipped "compute-sanitizer knows no simulated GPU"; return; }
  local sanitizer
  sanitizer=$(PATH=$PATH:${CUDA_PATH:-}/bin:/usr/local/cuda/bin command -v compute-sanitizer) || {
    row lacking "no compute-sanitizer; NVIDIA's package cuda-sanitizer-${CUDA_VERSION/./-} has it: install that, or put \
the folder of compute-sanitizer into PATH"
    return
  }
  build torch_tests
  [ -n "$(program torch_tests)" ] || { row skipped "$programs has no torch_tests"; return; }
  local help
  help=$("$sanitizer" --help 2>&1 || true)
  for tool in "${tools[@]}"; do
    local log=$out/$tool.log only_ours=() seconds=${seconds_of[$tool]} tests=$SMALL_TESTS
    [ $# -eq 0 ] || seconds=$((520 / $#)) tests='*/cuda'
    # What LibTorch's kernels write counts as written only if they are watched, too.
    [[ $tool = initcheck || $help != *--kernel-regex* ]] || only_ours=(--kernel-regex kns=bnlab)
    # Without LibTorch's cache of memory every tensor is an allocation that the tool can watch.
    limited "$seconds" "$log" env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "$sanitizer" --tool "$tool" --error-exitcode 9 \
      ${only_ours[@]+"${only_ours[@]}"} "$(program torch_tests)" --gtest_filter="$tests"
    row "$(verdict)" "$tool: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//'), $(
      count '^\[       OK \]' "$log") tests; $log"
    [ $status -ne 124 ] || row unfinished "scripts/gpu_check.sh sanitize $tool gives it all the time"
  done
}

part_verify() {
  local only=()
  [ $simulated = no ] || only=(--strategy per_tower)
  limited 530 "$out/verify.log" "$bnlab" verify --device cuda ${only[@]+"${only[@]}"}
  row "$(verdict)" "$(tail -n 1 "$out/verify.log" | sed 's/\.$//'); $out/verify.log"
}

part_bench() {
  [ $simulated = no ] || { row skipped "the torch of Python sees no simulated GPU, and times would mean nothing"; return; }
  "$BNLAB_INTERPRETER" -c 'import torch; torch.zeros(1, device="cuda")' >"$out/bench.log" 2>&1 || {
    row skipped "the torch of $BNLAB_INTERPRETER cannot use the GPU, so nothing is there to compare with; $out/bench.log"
    return
  }
  limited 530 "$out/bench.log" "$BNLAB_INTERPRETER" -u tests/bench/gpu_step_bench.py --device cuda --results "$out" \
    --program "$bnlab"
  row "$(verdict)" "training steps; $out/bench.log"
  while IFS= read -r line; do
    [[ $line = *" ms"* ]] && row ok "$line" || row FAILED "$line"
  done < <(grep -E '^(float32|bfloat16), ' "$out/bench.log" || true)
}

part_bandwidth() {
  [ $simulated = no ] || { row skipped "times of simulated GPUs mean nothing"; return; }
  build bandwidth_bench
  [ -n "$(program bandwidth_bench)" ] || { row skipped "$programs has no bandwidth_bench"; return; }
  limited 300 "$out/bandwidth.jsonl" "$(program bandwidth_bench)" --device cuda --megabytes 256
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

part_tradeoff() {
  local spec=experiments/overviews/tradeoff_gpu.json small=()
  [ $simulated = no ] || small=(--only seed=0 --only strategy=per_tower,sync steps=8 warmup_steps=2 eval_every=8
    'task.size=[16,16]' task.train=32 task.test=8)
  limited 420 "$out/tradeoff.log" "$bnlab" run $spec --device cuda --redo failed --results "$out" ${small[@]+"${small[@]}"}
  row "$(verdict)" "$(count '^ok ' "$out/tradeoff.log") runs ended well in this call; $out/tradeoff_gpu"
  [ $status -ne 124 ] || row unfinished "scripts/gpu_check.sh tradeoff goes on with the other runs"
  "$bnlab" report "$out/tradeoff_gpu" >"$out/tradeoff.txt" 2>>"$out/tradeoff.log" &&
    row ok "the table: $out/tradeoff.txt" || row FAILED "no report; $out/tradeoff.log"
}

# Fails where Python's torch sees no GPU, before anything is built.
require_gpu() {
  local visible driver
  visible=$("$BNLAB_INTERPRETER" -c 'import torch; print(torch.cuda.device_count())' 2>/dev/null) ||
    fail "$BNLAB_INTERPRETER cannot import torch; name a Python that can in BNLAB_PYTHON"
  [ "$visible" -eq 0 ] || return 0
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1) || driver=
  [[ $driver =~ ^[0-9] ]] || fail "no GPU is visible, so nothing can be checked here: \`nvidia-smi\` must list one, with \
driver $DRIVER_AT_LEAST or newer, which CUDA $CUDA_VERSION needs: install it, or pass GPUs on to this container (docker run --gpus all)"
  [ "${driver%%.*}" -ge $DRIVER_AT_LEAST ] ||
    fail "CUDA $CUDA_VERSION needs driver $DRIVER_AT_LEAST or newer, and this is driver $driver: install a newer one, or on \
GPUs of data centres NVIDIA's package cuda-compat-${CUDA_VERSION/./-} with its folder in LD_LIBRARY_PATH"
  fail "there is driver $driver, but torch sees no GPU: CUDA_VISIBLE_DEVICES is '${CUDA_VISIBLE_DEVICES-not set}', and \
\`$BNLAB_INTERPRETER -c 'import torch; torch.cuda.init()'\` says more"
}

# The state of the source, in a few letters; of changes that are not committed, a sum.
revision() {
  local commit changes
  if commit=$(git rev-parse --short=12 HEAD 2>/dev/null); then
    changes=$(git diff HEAD 2>/dev/null | sha256sum | cut -c 1-6)
    [ "$changes" = e3b0c4 ] || commit+=-changed-$changes  # e3b0c4: of nothing
    echo "$commit"
  else
    sha256sum "$bnlab" | cut -c 1-12
  fi
}

# What nvidia-smi says of the machine, where it is there.
gpu_state() {
  if ! command -v nvidia-smi >/dev/null; then
    echo "nvidia-smi: not there, so driver, clocks and other users of the GPU are not known"
    return
  fi
  local fields
  echo "== the GPUs before the first part"
  for fields in index,name,uuid,driver_version,pci.bus_id,compute_mode,mig.mode.current,persistence_mode \
      index,clocks.sm,clocks.mem,clocks.max.sm,clocks.max.mem,power.limit,temperature.gpu \
      index,utilization.gpu,memory.used,memory.total; do
    nvidia-smi --query-gpu=$fields --format=csv || true
  done
  echo "== their users; in a container others may be hidden"
  nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv || true
  nvidia-smi -q -d CLOCK,PERFORMANCE || true
}

# Writes the page of verdicts, with all parts that have ever run in this folder, and the archive.
write_table() {
  local name
  {
    echo "machine    $machine"
    echo "revision   $code"
    echo "driver     $driver"
    echo "users      $users"
    echo "logs       beside this page, in $out"
    echo "written    $(date -u '+%Y-%m-%d %H:%M') UTC by $(uname -n)"
    [ $simulated = no ] || echo "times      mean nothing: these GPUs are simulated; only a few small cases ran"
    echo
    for name in $PARTS; do
      [ ! -e "$out/$name.tsv" ] || cat "$out/$name.tsv"
    done | awk -F '\t' '{ printf "%-10s %-10s %s\n", $1, $2, $3 }'
  } >"$out/table.txt"
  tar -czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")" || talk "no archive could be written: $out.tar.gz"
}

# What is asked for, and whether this machine has what it takes.
parts=() tools=()
for name in "$@"; do
  case " $PARTS | $TOOLS " in
    *" $name "*"|"*) parts+=("$name") ;;
    *"|"*" $name "*) tools+=("$name") ;;
    *)
      sed -n '2,/^[^#]/s/^# \{0,1\}//p' scripts/gpu_check.sh >&2
      exit 2
      ;;
  esac
done
[ ${#parts[@]} -gt 0 ] || [ ${#tools[@]} -eq 0 ] || parts=(sanitize)
[ ${#parts[@]} -gt 0 ] || read -ra parts <<<"$PARTS"

source scripts/versions.sh
if [ -n "$programs" ]; then
  [ -x "$programs/bnlab" ] || fail "BNLAB_GPU_CHECK_PROGRAMS: there is no program $programs/bnlab"
  [ ! -e build/toolchain.env ] || source build/toolchain.env
  BNLAB_INTERPRETER=${BNLAB_PYTHON:-${BNLAB_INTERPRETER:-python3}}
else
  load_settings
  [ -n "$BNLAB_TOOLKIT" ] ||
    fail "this checkout was set up without CUDA; BNLAB_CUDA_TOOLKIT=auto scripts/gpu_check.sh sets it up with CUDA"
  require_gpu
fi
build bnlab
bnlab=$(program bnlab)

# The folder of this machine and this revision.
doctor=$("$bnlab" doctor) || true
machine=$(sed -n 's/^GPUs  *\["\(.*\)"\]$/\1/p' <<<"$doctor" | sed 's/","/, /g')
[ -n "$machine" ] || fail "$bnlab sees no GPU: \`$bnlab doctor\` says $(grep '^GPUs' <<<"$doctor" || echo nothing of GPUs)"
gpus=$(awk -F ', ' '{ print NF }' <<<"$machine")
nccl=$(sed -n 's/.*NCCL \([0-9.]*\).*/\1/p' <<<"$doctor")
simulated=no driver="not known" users="not known"
[[ $machine != Simulated* ]] || simulated=yes
identity=$(uname -n)
if command -v nvidia-smi >/dev/null && [ $simulated = no ]; then
  identity=$(nvidia-smi --query-gpu=uuid --format=csv,noheader | head -n 1 | cut -c 5-12) || identity=$(uname -n)
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1) || true
  users=$(nvidia-smi --query-compute-apps=process_name --format=csv,noheader | paste -sd ,) || true
  users=${users:-none is seen}
fi
code=$(revision)
label=$(sed 's/,.*//' <<<"$machine" | tr '[:upper:]' '[:lower:]' | tr -cs '[:alnum:]\n' -)
out=$results/$label-x$gpus-$identity-$code
for other in "$results"/*/table.txt; do
  [ ! -e "$other" ] || [ "$other" = "$out/table.txt" ] ||
    talk "Results of another machine or revision stay as they are: $(dirname "$other")"
done
mkdir -p "$out"
{
  echo "$doctor"
  [ $simulated = yes ] || gpu_state
} >"$out/machine.txt" 2>&1
grep -E '^(CPU|LibTorch|GPUs|backends|          )' <<<"$doctor" >&2 || true
talk "driver    $driver; other users of the GPU: $users"

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
  write_table  # after each part: the hour may be over before the last
done

cat "$out/table.txt"
printf '\n%s\n%s\n' "$out.tar.gz" "$out/table.txt"
for part in "${parts[@]}"; do  # the exit status is that of this call
  ! grep -qP '\t(FAILED|unfinished)\t' "$out/$part.tsv" || exit 1
done
