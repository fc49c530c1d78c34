#!/usr/bin/env bash
# Writes the table and the figure of this page from times.json, which lies beside it.
#   results/towers/publish.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/stages.sh
load_settings
page=results/towers
table=$(mktemp)
trap 'rm "$table"' EXIT
"$BNLAB_INTERPRETER" -B scripts/figures/towers.py "$page/times.json" --out "$page/figures/towers" --table > "$table"
sed -i -e "/^<!-- table:towers -->\$/,/^<!-- end -->\$/{//!d}" -e "/^<!-- table:towers -->\$/r $table" "$page/README.md"
