#!/usr/bin/env bash
# Checks and measures bnlab on a machine with a GPU. Each part builds what it needs, takes at most nine
# minutes and can be called alone. A part that was cut short goes on when it is called again, with the runs
# that have no record yet or failed.
#   scripts/gpu_check.sh [--minutes N] [--against DIR] [part...]      all parts, in the order of their worth, or some:
#     first       a minute: one run, CUDA graphs, a resumed run, two ranks, each compared number by number
#     two         two ranks that share one GPU, over peers' memory: the same, and one of them is killed
#     tests       the tests that need a GPU
#     bandwidth   what share of the copy bandwidth the kernels reach on the shapes of real sites
#     strategies  training steps under every strategy, in turns (norm_cost_gpu)
#     bench       training steps of a PSPNet and a U-Net beside eager PyTorch and torch.compile
#     trace       what kernels a step is spent on, how long the GPU idles, how long NCCL takes and beside what
#     verify      every strategy on the GPU against the float64 reference
#     sanitize    small kernel tests under compute-sanitizer: memcheck, racecheck, initcheck, synccheck
#     lost        on two GPUs: a rank is killed, the run has to end and to name it
#     ddp         on two GPUs: bench beside DistributedDataParallel, SyncBatchNorm and apex's
#     tradeoff    experiments/overviews/tradeoff_gpu.json: throughput against accuracy
#   scripts/gpu_check.sh sanitize TOOL  one tool of compute-sanitizer, with all the time and all kernel tests
# --minutes N ends in time: parts take less, with fewer rounds, and those for which no time is left are skipped.
# --against DIR has bandwidth_bench of another build, which takes turns with this one's.
# Every machine and every revision of the code has a folder of its own in results/gpu_check, or in the folder
# that BNLAB_GPU_RESULTS names. It holds records, logs, machine.txt (driver, clocks, other users of the GPU),
# clocks while parts ran, and the page of verdicts, table.txt (for programs check.json), whose path is printed
# last. FOLDER.tar beside it is all that but weights, to be sent; unpacked, `bnlab check FOLDER` reads it.
# Verdicts: ok; slow, a figure below its bar; FAILED; unfinished, out of time; skipped and lacking, which say
# why. The bars are goals from arithmetic. Exit status 1 if something FAILED or is unfinished.
# BNLAB_GPU_CHECK_PROGRAMS=DIR takes bnlab, bnlab-more, torch_tests (or simgpu_tests) and bandwidth_bench from DIR and
# builds nothing. With build/release/tests/simgpu the parts run on simulated GPUs, in small, within some
# minutes. No network is needed where BNLAB_PYTHON names a Python that has torch.
set -euo pipefail
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh

readonly PARTS="first two tests bandwidth strategies bench trace verify sanitize lost ddp tradeoff"
# Seconds of each part where time is short; all may take NINE_MINUTES.
declare -A brief=([first]=60 [two]=60 [tests]=70 [bandwidth]=60 [strategies]=60 [bench]=130 [trace]=60 [verify]=60
  [sanitize]=60 [lost]=60 [ddp]=120 [tradeoff]=100)
readonly NINE_MINUTES=540 FOR_EVER=1000000
readonly TOOLS="memcheck racecheck initcheck synccheck"
readonly DRIVER_AT_LEAST=580  # of CUDA 13
readonly SMALL_TESTS='*/cuda:-*EqualTheirFormulasForEveryShape*:*ManySlicesInOneCall*'
# Under a tool of compute-sanitizer a kernel takes up to 200 times as long: two dozen cases of few values.
readonly FEW_VALUES="$SMALL_TESTS:*FarFromZero*:*GiveGroupNormAndItsGradients*:*BackwardGivesTheGradientsOfBatchNorm*"
declare -A seconds_of=([memcheck]=150 [racecheck]=170 [initcheck]=110 [synccheck]=90)
results=results/gpu_check
[ -z "${BNLAB_GPU_RESULTS:-}" ] || results=$(cd "$caller" && realpath -m "$BNLAB_GPU_RESULTS")
programs=${BNLAB_GPU_CHECK_PROGRAMS:-}
minutes='' against=''
while [[ $# -ge 2 ]]; do
  case $1:$2 in
    --minutes:[1-9]*) minutes=$2 ;;
    --against:*) against=$(cd "$caller" && realpath "$2") ;;
    *) break ;;
  esac
  shift 2
done
folders=(build/release build/release/tests build/release/tests/bench)  # of the programs
if [ -n "$programs" ]; then
  programs=$(cd "$caller" && realpath -m "$programs")
  folders=("$programs")
fi

# row VERDICT TEXT: a line of the table for the part that is running. Paths in it start at the table's folder.
row() {
  printf '%s\t%s\t%s\n' "$part" "$1" "${2//"$out/"/}" >>"$out/$part.tsv"
  write_table
}

# tell_rows LOG: the lines of a program's output that are rows, but for the first $told of them.
tell_rows() {
  local said text
  while IFS=$'\t' read -r said text; do
    row "$said" "$text"
    told=$((told + 1))
  done < <(grep -P '^(ok|slow|FAILED|skipped|lacking)\t' "$1" | tail -n +$((told + 1)))
}

left() { echo $((part_ends - SECONDS)); }

# limited SECONDS LOG COMMAND...: runs the command, as long as the part may take; its output goes to the log, and the
# rows in it into the table at once. Sets $status, 124 if cut short.
limited() {
  local seconds=$1 log=$2 told=0
  shift 2
  status=0
  [ "$seconds" -lt "$(left)" ] || seconds=$(left)
  : >"$log"
  [ "$seconds" -gt 2 ] || { status=124; return; }
  talk "  $* (log: $log)"
  timeout --kill-after=20 "$seconds" "$@" >"$log" 2>&1 &
  job=$!
  while kill -0 $job 2>/dev/null; do
    sleep 0.2
    tell_rows "$log"
  done
  wait $job || status=$?
  job=
  tell_rows "$log"
}
job='' clocks='' warming=''
trap 'for p in $job $clocks $warming; do kill "$p" || true; done; exit 130' INT TERM

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

# judged LOG NAME: one more row if the program of these rows broke off.
judged() { grep -qP '^FAILED\t' "$1" || [ $status -eq 0 ] || row "$(verdict)" "$2; $1"; }

# What torch.compile makes of the PSPNet is kept by PyTorch: it is made beside parts that take no times.
warm_up() {
  [[ $simulated = no && " ${parts[*]} " = *" bench "* && ${parts[0]} != bench ]] || return 0
  timeout 150 nice "$BNLAB_INTERPRETER" tests/bench/rivals_bench.py --warm --case pspnet:bfloat16 --results "$out/bench" \
    >"$out/warm_up.log" 2>&1 &
  warming=$!
}

# While a part runs: clocks, temperature, power and why clocks are held down, each second.
watch_clocks() {
  [ $has_smi = no ] || {
    nvidia-smi --query-gpu=timestamp,index,clocks.sm,clocks.mem,temperature.gpu,power.draw,utilization.gpu,clocks_event_reasons.active \
      --format=csv,nounits -l 1 >"$out/$part.clocks.csv" 2>&1 &
    clocks=$!
  }
}
tell_clocks() {
  [ -n "$clocks" ] || return 0
  kill "$clocks" 2>/dev/null || true
  wait "$clocks" 2>/dev/null || true
  clocks=
  local range
  range=$(awk -F ', *' '$7 + 0 > 0 { if (!n++ || $3 < low) low = $3; if ($3 > high) high = $3; if ($5 > hot) hot = $5 }
    END { if (n) print low " to " high " MHz, at most " hot " degrees" }' "$out/$part.clocks.csv")
  [ -z "$range" ] || row ok "clocks of the busy GPU: $range; $out/$part.clocks.csv"
}

# program NAME: its path; of the tests there are two names.
program() {
  local folder
  for folder in "${folders[@]}"; do
    [ ! -x "$folder/$1" ] || { echo "$folder/$1"; return; }
  done
  [ "$1" != torch_tests ] || program simgpu_tests
}

# has PROGRAM: builds it; says in a row that it is not among those that were given.
has() {
  build "$1"
  [ -n "$(program "$1")" ] || { row skipped "$programs has no $1"; return 1; }
}

# Runs whose rows scripts/gpu_runs.py prints.
short_runs() {
  limited 500 "$out/$part.log" "$BNLAB_INTERPRETER" scripts/gpu_runs.py "$part" --program "$bnlab" --results "$out" --gpus "$gpus"
  judged "$out/$part.log" "the runs broke off"
}

part_first() { short_runs; }
part_two() { short_runs; }
part_lost() { short_runs; }

part_strategies() {
  [ $simulated = no ] || { row skipped "times of simulated GPUs mean nothing"; return; }
  watch_clocks
  short_runs
  tell_clocks
}

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
  has torch_tests || return 0
  if [ $simulated = yes ]; then
    run_tests kernels 150 "$SMALL_TESTS"
    run_tests training 100 '*/CudaTraining.*/sync'
  else
    run_tests kernels 150 '*/cuda'
    run_tests training 100 '*/CudaTraining.*:CudaTrainingOfOptions.*'
    run_tests every_strategy 200 '*/Cuda.*'
  fi
  run_tests two_ranks_on_one_gpu 80 '*/CudaSharedGpu.*'  # its own process: CUDA reads its variables once
}

part_sanitize() {
  local tools=("$@") tool
  [ ${#tools[@]} -gt 0 ] || read -ra tools <<<"$TOOLS"
  [[ $# -gt 0 || $ease -gt 50 ]] || tools=(memcheck racecheck)
  [ $simulated = no ] || { row skipped "compute-sanitizer knows no simulated GPU"; return; }
  local sanitizer
  sanitizer=$(PATH=$PATH:${CUDA_PATH:-}/bin:/usr/local/cuda/bin command -v compute-sanitizer) || {
    row lacking "no compute-sanitizer; NVIDIA's package cuda-sanitizer-${CUDA_VERSION/./-} has it: install that, or put \
the folder of compute-sanitizer into PATH"
    return
  }
  has torch_tests || return 0
  local help tried=0
  help=$("$sanitizer" --help 2>&1 || true)
  for tool in "${tools[@]}"; do
    local log=$out/$tool.log only_ours=() seconds=${seconds_of[$tool]} tests=$FEW_VALUES
    [ $# -eq 0 ] || seconds=$((520 / $#)) tests='*/cuda'
    [ $ease -eq 100 ] || seconds=$(($(left) / (${#tools[@]} - tried))) tried=$((tried + 1))
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

# On simulated GPUs a trial, in which Python's torch trains on the CPU where it sees none of them.
beside_pytorch() {
  local small=(--trial)
  if [ $simulated = no ]; then
    small=()
    "$BNLAB_INTERPRETER" -c 'import torch; torch.zeros(1, device="cuda")' >"$out/$part.log" 2>&1 || {
      row skipped "the torch of $BNLAB_INTERPRETER cannot use the GPU, so nothing is there to compare with; $out/$part.log"
      return
    }
  fi
  watch_clocks
  limited 530 "$out/$part.log" "$BNLAB_INTERPRETER" -u tests/bench/rivals_bench.py --device cuda --ranks "$1" \
    --seconds $(($(left) - 15)) --rounds $((2 + ease / 100)) --results "$out/$part" --program "$bnlab" \
    ${small[@]+"${small[@]}"}
  tell_clocks
  judged "$out/$part.log" "steps beside PyTorch's"
}

part_bench() { beside_pytorch 1; }

part_ddp() {
  [ "$gpus" -ge 2 ] || { row skipped "there is one GPU; this needs two"; return; }
  beside_pytorch 2
}

part_bandwidth() {
  has bandwidth_bench || return 0
  local other=() size=(-- --device cuda --megabytes 256 --rounds $((7 + 8 * ease / 100)))
  [ $simulated = no ] || size=(--trial -- --device cuda)
  [ -z "$against" ] || other=(--against "$against/bandwidth_bench")
  watch_clocks
  limited 300 "$out/bandwidth.log" "$BNLAB_INTERPRETER" scripts/gpu_bandwidth.py --program "$(program bandwidth_bench)" \
    ${other[@]+"${other[@]}"} --log "$out/bandwidth.jsonl" --seconds $(($(left) < 300 ? $(left) - 5 : 295)) "${size[@]}"
  tell_clocks
  judged "$out/bandwidth.log" "the measurements broke off; $out/bandwidth.jsonl"
}

# traced NAME RANKS SPEC WORDS...: five steps of the spec's first run. NCCL's kernels may run alone in 5 % of per_tower's.
traced() {
  local log=$out/trace/$1.log device=cuda said alone
  [ $simulated = no ] || device=cpu
  limited 150 "$log" "$bnlab" trace "${@:3}" --ranks "$2" --device $device --steps 5
  said=$(grep ' ms a step under the profiler' "$log") || said="$(tail -n 1 "$log")"
  alone=$(sed -n 's/.*alone \([0-9]*\)\.[0-9]* %.*/\1/p' <<<"$said")
  [[ $status -ne 0 || $1 != *per_tower* || ${alone:-0} -lt 5 ]] || { row slow "$1: $said (at most 5 % asked); $log"; return; }
  row "$(verdict)" "$1: $said$([ $simulated = no ] || echo " (a trial of the CPU: no profiler sees simulated GPUs)"); $log"
}

part_trace() {
  local spec=$out/trace/pspnet.json strategy tried log
  mkdir -p "$out/trace"
  cat >"$spec" <<'JSON'
{"task": {"name": "shapes", "size": [473, 473], "train": 64, "test": 2}, "precision": "bfloat16",
 "model": {"name": "pspnet", "backbone": {"name": "resnet", "depth": 50}, "auxiliary_weight": 0.4}, "steps": 100,
 "optimizer": {"lr": 0.01, "weight_decay": 1e-4}, "towers": 2, "batch_per_tower": 2, "strategy": "per_tower"}
JSON
  [ $simulated = no ] || { traced pspnet 1 "$spec" 'task.size=[17,17]' model.backbone.{depth=18,width=4}; return; }
  traced pspnet 1 "$spec" towers=1 batch_per_tower=4
  traced pspnet_plain 1 "$spec" towers=1 batch_per_tower=4 cuda_graph=false
  traced unet_resnet50 1 norm_cost_gpu
  for tried in 10 0; do  # algorithms of cuDNN for each convolution: as bnlab does, and all
    log=$out/trace/eager-$tried.log
    limited 90 "$log" "$BNLAB_INTERPRETER" tests/bench/rivals_bench.py --trace --algorithms $tried \
      --case pspnet:bfloat16 --results "$out/trace"
    judged "$log" "PyTorch's trace broke off"
  done
  [ "$gpus" -lt 2 ] || for strategy in per_tower sync; do traced pspnet_2_$strategy 2 "$spec" strategy=$strategy; done
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
  command -v nvidia-smi >/dev/null || echo "without nvidia-smi driver, clocks and other users of the GPU are not known"
  nvidia-smi -q || true  # their users, too; in a container others may be hidden
  nvidia-smi topo -m || true
}

# Writes the page of verdicts for people, with all parts that have ever run in this folder.
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
}

# And for programs.
write_page() {
  write_table
  "$BNLAB_INTERPRETER" - "$out" "$PARTS" "machine=$machine" "revision=$code" "driver=$driver" "simulated=$simulated" \
    "written=$(date -u '+%Y-%m-%d %H:%M UTC')" <<'PYTHON'
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
page = {"kind": "bnlab.gpu_check", "schema_version": 1, **dict(word.split("=", 1) for word in sys.argv[3:])}
page["simulated"] = page["simulated"] == "yes"
files = [folder / f"{part}.tsv" for part in sys.argv[2].split()]
lines = [line.split("\t", 2) for file in files if file.exists() for line in file.read_text(errors="replace").splitlines()]
page["rows"] = [dict(zip(("part", "verdict", "text"), line)) for line in lines]
(folder / "check.json").write_text(json.dumps(page, indent=1) + "\n")
PYTHON
}

# Writes the archive: what lies in the folder, but weights and half-written files, with a list of checksums.
write_archive() {
  local name=${out##*/}
  (
    cd "$out"
    find . -name '.?*' -prune -o -type f ! -name MANIFEST.sha256 ! -name '*.safetensors' -printf '%P\0' | LC_ALL=C sort -z |
      xargs -0 sha256sum >MANIFEST.sha256
    tar -C .. --owner=0 --group=0 --numeric-owner -cf "../$name.tar" "$name/MANIFEST.sha256" \
      -T <(cut -c 67- MANIFEST.sha256 | sed "s|^|$name/|")
  ) || talk "no archive could be written: $out.tar"
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
  require_gpu
  [ -n "$BNLAB_TOOLKIT" ] ||
    fail "this checkout was set up without CUDA; BNLAB_CUDA_TOOLKIT=auto scripts/gpu_check.sh sets it up with CUDA"
fi
build bnlab bnlab-more
bnlab=$(program bnlab)

# The folder of this machine and this revision.
doctor=$("$bnlab" doctor) || true
machine=$(sed -n 's/^GPUs  *\["\(.*\)"\]$/\1/p' <<<"$doctor" | sed 's/","/, /g')
[ -n "$machine" ] || fail "$bnlab sees no GPU: \`$bnlab doctor\` says $(grep '^GPUs' <<<"$doctor" || echo nothing of GPUs)"
gpus=$(awk -F ', ' '{ print NF }' <<<"$machine")
simulated=no has_smi=no driver="not known" users="not known" identity=$(uname -n)
[[ $machine != Simulated* ]] || simulated=yes
if command -v nvidia-smi >/dev/null && [ $simulated = no ]; then
  has_smi=yes
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

# Where there are fewer minutes than all parts may take, each has its brief time, and of the rest its share: $ease per cent.
ease=100 ends=$FOR_EVER
if [ -n "$minutes" ]; then
  ends=$((60 * minutes)) least=0
  if [ "$gpus" -lt 2 ]; then brief[lost]=10 brief[ddp]=10; fi  # which say so
  for part in "${parts[@]}"; do least=$((least + brief[$part])); done
  ease=$((100 * (ends - least) / (NINE_MINUTES * ${#parts[@]} - least)))
  ease=$((ease < 0 ? 0 : ease > 100 ? 100 : ease))
fi
warm_up
for part in "${parts[@]}"; do
  talk "== $part"
  [[ $part = @(first|two|tests) || -z $warming ]] || { wait "$warming" || true; warming=; }
  started=$SECONDS
  touch "$out/$part.tsv"
  if [ "$part" = sanitize ] && [ ${#tools[@]} -gt 0 ]; then
    for tool in "${tools[@]}"; do sed -i "/[\t ]${tool}[: ]/d" "$out/$part.tsv"; done  # the other tools' rows stay
  else
    : >"$out/$part.tsv"
  fi
  part_ends=$((started + brief[$part] + (NINE_MINUTES - brief[$part]) * ease / 100))
  part_ends=$((part_ends < ends - 5 ? part_ends : ends - 5))
  if [ $((2 * (part_ends - started))) -lt "${brief[$part]}" ]; then
    row skipped "no time left: it takes ${brief[$part]} s"
  else
    "part_$part" ${tools[@]+"${tools[@]}"}
    talk "   $((SECONDS - started)) s"
  fi
  write_page
  write_archive
done
[ -z "$warming" ] || kill "$warming" || true

cat "$out/table.txt"
printf '\n%s\n%s\n' "$out.tar" "$out/table.txt"
for part in "${parts[@]}"; do  # the exit status is that of this call
  ! grep -qP '\t(FAILED|unfinished)\t' "$out/$part.tsv" || exit 1
done
