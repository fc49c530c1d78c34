#!/usr/bin/env bash
# From a fresh clone to figures: sets up and builds where needed, runs an experiment (finished runs are skipped),
# prints its table, draws its figures and says where they are. Records go to results/here, apart from the
# committed ones, unless --results names another folder.
#   scripts/run.sh                              the experiment quickstart, two runs at a time, and beside the figure a sheet
#                                               of images, ground truth and the predictions of each strategy
#   scripts/run.sh SPEC [options of bnlab run]  another experiment
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh

sheet= figures=()
if [ $# -eq 0 ]; then
  set -- quickstart --ranks 1 --jobs 2
  sheet=1 figures=(--figures accuracy_by_population)
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
  build/release/bnlab predict "${runs[@]}" --samples 1,11,20,34 --out "$folder/predictions" >/dev/null &&
    scripts/plot.sh "$folder/predictions" --classes background inside rim || status=1
  build/release/bnlab report "$1" --results "$results" --format json | "$BNLAB_PYTHON" -B scripts/figures/opening.py || status=1
fi
exit $status
