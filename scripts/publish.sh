#!/usr/bin/env bash
# Writes every committed table and figure again from the committed records: the tables of results/*/README.md, the
# figures that lie in results/*/figures, the answers to the questions of experiments/README.md as far as there are any,
# and the strategies and the figure of README.md. A test compares them with the records.
#   scripts/publish.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh

load_settings
scripts/build.sh release bnlab
export BNLAB_PROGRAM=${BNLAB_PROGRAM:-build/release/bnlab}
export BNLAB_PYTHON=$BNLAB_INTERPRETER

report() {
  "$BNLAB_PROGRAM" report "$1" "${@:2}"
}

for page in results/*/README.md; do
  name=$(basename "$(dirname "$page")")
  report "$name" --into "$page"
  figures=("results/$name/figures"/*.csv)
  [ -e "${figures[0]}" ] || continue
  figures=("${figures[@]##*/}")
  scripts/plot.sh "results/$name" --figures "${figures[@]%.csv}"
done
answered=()
for name in $(sed -n '/^| | spec | question |$/,/^$/p' experiments/README.md | cut -d "|" -f 3 | grep -o '\w*\.json'); do
  name=${name%.json}
  if grep -qs '^\*\*Answer\.\*\*' "results/$name/findings.md"; then answered+=("$name"); fi
done
for document in README.md results/README.md; do
  "$BNLAB_PROGRAM" answers "${answered[@]}" --into "$document"
done
"$BNLAB_PYTHON" -B scripts/figures/first_screen.py README.md <(report catalogue --format json) \
  <(report tradeoff --format json) --out results
