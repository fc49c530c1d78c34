#!/usr/bin/env bash
# Writes the table and the figure of this page from the records of the five experiments about cost: the occasions are told apart
# by their seeds.
#   results/again/publish.sh [PAGE]     PAGE: another folder with the page's README.md
set -euo pipefail
page=$(realpath "${1:-$(dirname "${BASH_SOURCE[0]}")}")
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/stages.sh
[ -n "${BNLAB_INTERPRETER:-}" ] || load_settings
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT

# The report of an experiment's runs whose seeds match.
report_of() {
  local results=$scratch/$1-$2
  mkdir -p "$results/$1"
  grep -E "\"run_id\":\"[^\"]*-seed$3-" "results/$1/runs.jsonl" > "$results/$1/runs.jsonl"
  "${BNLAB_PROGRAM:-build/release/bnlab}" report "$1" --results "$results" --format json > "$results.json"
  reports+=("$results.json")
}

reports=()
for name in sync_overhead statistics_route tradeoff weight_averaging scaling; do
  second=$([ $name = tradeoff ] && echo '2[0-5]' || echo '1[6-8]')
  grep -qE "\"run_id\":\"[^\"]*-seed$second-" "results/$name/runs.jsonl" || continue
  report_of "$name" first '1[0-5]'
  report_of "$name" second "$second"
done
"$BNLAB_INTERPRETER" -B scripts/figures/occasions.py "${reports[@]}" --out "$page/figures/occasions" --table > "$scratch/table"
sed -i -e "/^<!-- table:again -->\$/,/^<!-- end -->\$/{//!d}" -e "/^<!-- table:again -->\$/r $scratch/table" "$page/README.md"
