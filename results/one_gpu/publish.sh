#!/usr/bin/env bash
# Writes the summary, the rows and the figures of this page from times.json, which lies beside it.
#   results/one_gpu/publish.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/stages.sh
load_settings
page=results/one_gpu
table=$(mktemp)
trap 'rm "$table"' EXIT
draw() { "$BNLAB_INTERPRETER" -B scripts/figures/one_gpu.py "$page/times.json" "$@"; }
draw --out "$page/figures"
draw --rows "$page" > "$table"
sed -i -e "/^<!-- table:summary -->\$/,/^<!-- end -->\$/{//!d}" -e "/^<!-- table:summary -->\$/r $table" "$page/README.md"
