#!/usr/bin/env bash
# Writes the table and the figure of this page from the records of the five experiments about cost.
#   results/again/publish.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/stages.sh
load_settings
page=results/again
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT

reports=()
for name in sync_overhead statistics_route tradeoff weight_averaging scaling; do
  "${BNLAB_PROGRAM:-build/release/bnlab}" report "$name" --format json > "$scratch/$name.json"
  reports+=("$scratch/$name.json")
done
"$BNLAB_INTERPRETER" -B scripts/figures/occasions.py "${reports[@]}" --second 16,17,18 --out "$page/figures/occasions" --table \
  > "$scratch/table"
sed -i -e "/^<!-- table:again -->\$/,/^<!-- end -->\$/{//!d}" -e "/^<!-- table:again -->\$/r $scratch/table" "$page/README.md"
