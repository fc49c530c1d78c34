#!/usr/bin/env bash
# Writes every committed table and figure again from the committed records: the tables of results/*/README.md, the
# figures that lie in results/*/figures, and the first screen of README.md. A test compares them with the records.
#   scripts/publish.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh

load_settings
scripts/build.sh release bnlab
export BNLAB_PROGRAM=${BNLAB_PROGRAM:-build/release/bnlab}
export BNLAB_PYTHON=$BNLAB_INTERPRETER

report() {
  "$BNLAB_PROGRAM" report "experiments/$1.json" "${@:2}"
}

for page in results/*/README.md; do
  name=$(basename "$(dirname "$page")")
  report "$name" --into "$page"
  figures=("results/$name/figures"/*.csv)
  figures=("${figures[@]##*/}")
  scripts/plot.sh "results/$name" --figures "${figures[@]%.csv}"
done
"$BNLAB_PYTHON" -B scripts/figures/first_screen.py README.md <(report catalogue --format json) \
  <(report tradeoff --format json) --out results
