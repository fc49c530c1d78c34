#!/usr/bin/env bash
# From a fresh clone to figures: sets up and builds where needed, runs an experiment (finished runs are skipped),
# prints its table, draws its figures and says where they are. Records go to results/here, apart from the
# committed ones, unless --results names another folder.
#   scripts/run.sh                              the experiment quickstart on 2 ranks
#   scripts/run.sh SPEC [options of bnlab run]  another experiment
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh

[ $# -gt 0 ] || set -- quickstart --ranks 2
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
echo
BNLAB_PYTHON=$BNLAB_INTERPRETER scripts/plot.sh "$results/$experiment" --spec "$1" || status=1
exit $status
