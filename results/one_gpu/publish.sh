#!/usr/bin/env bash
# Writes the tables and the figures of this page from times.json, which lies beside it.
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
for name in norms steps kernels; do
  draw --table "$name" > "$table"
  sed -i -e "/^<!-- table:$name -->\$/,/^<!-- end -->\$/{//!d}" -e "/^<!-- table:$name -->\$/r $table" "$page/README.md"
done
