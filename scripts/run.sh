#!/usr/bin/env bash
# From a fresh clone to figures: sets up and builds where needed, runs an experiment (finished runs are skipped),
# prints its table, draws its figures and says where they are. Records go to results/here, apart from the
# committed ones, unless --results names another folder. Relative paths of SPEC, --data and --results start where
# it was called.
#   scripts/run.sh                              the experiment quickstart, two runs at a time, and beside the figure a sheet
#                                               of images, ground truth and what each strategy gets wrong
#   scripts/run.sh SPEC [options of bnlab run]  another experiment
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit; }
caller=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/.."
clone=$PWD
source scripts/stages.sh

# of_caller PATH: the same path, seen from here.
of_caller() { [ -z "$1" ] || (cd "$caller" && realpath -ms --relative-base="$clone" -- "$1"); }

sheet= figures=()
if [ $# -eq 0 ]; then
  set -- quickstart --ranks 1 --jobs 2
  sheet=1 figures=(--figures accuracy_by_population)
else
  words=() before=
  for word in "$@"; do
    case $before in --data | --results) word=$(of_caller "$word") ;; esac
    case $word in --data=* | --results=*) word=${word%%=*}=$(of_caller "${word#*=}") ;; esac
    words+=("$word") before=$word
  done
  set -- "${words[@]}"
  if (cd "$caller" && [[ -f $1 || -f $1/spec.json ]]); then set -- "$(of_caller "$1")" "${@:2}"; fi
  BNLAB_DATA=$(of_caller "${BNLAB_DATA:-}")
fi
experiment=$(basename "$1" .json)
results=
for ((i = 2; i <= $#; i++)); do
  case "${!i}" in
    --results) following=$((i + 1)) && results=${!following:-} ;;
    --results=*) results=${!i#--results=} ;;
  esac
done

[ -n "$results" ] || { results=results/here && set -- "$@" --results "$results"; }

load_settings
scripts/build.sh release bnlab

status=0
build/release/bnlab run "$@" || status=$?
[ $status -le 1 ] || exit $status  # 1: some runs failed; what did finish is still worth a figure
export BNLAB_PYTHON=$BNLAB_INTERPRETER
folder=$results/$experiment
echo
scripts/plot.sh "$folder" --spec "$1" ${figures[@]+"${figures[@]}"} || status=1
if [ -n "$sheet" ]; then
  runs=("$folder"/{per_tower,sync,group_norm}-*-seed0-*/*-cpu)
  build/release/bnlab predict "${runs[@]}" --count 4 --out "$folder/predictions" >/dev/null &&
    scripts/plot.sh "$folder/predictions" --classes background inside rim --errors || status=1
  "$BNLAB_PYTHON" -B scripts/figures/finding.py <(build/release/bnlab report "$1" --results "$results" --format json) \
    <(build/release/bnlab report nuclei_small_batch --results results --format json) "$folder/predictions/contact_sheet.png" || status=1
fi
exit $status
