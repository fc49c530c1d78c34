#!/usr/bin/env bash
# Keeps finished runs in results/*/runs.jsonl and writes every committed table and figure again from them: the tables of results/*/README.md, the
# figures that lie in results/*/figures, the answers to the questions of experiments/README.md as far as there are any
# (in README.md one line for each question), and the figures of README.md. A test compares them with the records.
#   scripts/publish.sh
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh

load_settings
scripts/build.sh release bnlab bnlab-more
export BNLAB_PROGRAM=${BNLAB_PROGRAM:-build/release/bnlab}

scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT

names=()
for page in results/*/README.md; do
  name=$(basename "$(dirname "$page")")
  if [ -x "results/$name/publish.sh" ]; then "results/$name/publish.sh"; else names+=("$name"); fi
done
mapfile -t finished < <(compgen -G 'results/*/*/*/record.json' | cut -d / -f 1,2 | sort -u)
[ ${#finished[@]} = 0 ] || "$BNLAB_PROGRAM" keep "${finished[@]}"
"$BNLAB_PROGRAM" report "${names[@]}" --into results
"$BNLAB_PROGRAM" report "${names[@]}" --format json --out "$scratch"
for name in "${names[@]}"; do
  figures=("results/$name/figures"/*.csv)
  [ -e "${figures[0]}" ] || continue
  find "results/$name/figures" -name '*.png' ! -name contact_sheet.png -delete  # those that the page shows are drawn again
  figures=("${figures[@]##*/}")
  "$BNLAB_INTERPRETER" -B scripts/figures --out "results/$name/figures" --figures "${figures[@]%.csv}" <"$scratch/$name.json"
done
# The specs of the questions, one per line, that have an answer.
answered() {
  while read -r name; do
    if grep -qs '^\*\*In numbers\.\*\*' "results/$name/README.md"; then echo "$name"; fi
  done
}
questions=$(sed -n '/^| | spec | question |$/,/^$/p' experiments/README.md | cut -d "|" -f 2,3)
# README.md has a line per question, from its first spec, and what is predicted; results/README.md has them all, with the
# evidence.
{ sed -n 's/^ Q[0-9]* | `\(\w*\)\.json`.*/\1/p' <<<"$questions" | answered; echo prediction; } |
  xargs "$BNLAB_PROGRAM" answers --short --into README.md
grep -o '\w*\.json' <<<"$questions" | cut -d . -f 1 | answered |
  xargs "$BNLAB_PROGRAM" answers --into results/README.md

# figure NAME: draws one of README.md, of the reports of the experiments that it names.
figure() {
  local names
  read -ra names < <("$BNLAB_INTERPRETER" -B "scripts/figures/$1.py" --names)
  names=("${names[@]/#/$scratch/}")
  "$BNLAB_INTERPRETER" -B "scripts/figures/$1.py" "${names[@]/%/.json}" --out results
}
figure headline
figure price
law=results/crop_size/README.md
"$BNLAB_INTERPRETER" -B scripts/figures/crop_law.py "$scratch"/crop_size{,_streets}.json --out results/crop_size/crop_law --table >"$scratch/law"
sed -i -e '/^<!-- table:law -->$/,/^<!-- end -->$/{//!d}' -e "/^<!-- table:law -->\$/r $scratch/law" "$law"
