#!/usr/bin/env bash
# Writes the tables and the figure of this page from the probes that lie beside it.
#   results/prediction/publish.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/stages.sh
load_settings
page=results/prediction
bnlab=${BNLAB_PROGRAM:-build/release/bnlab}
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT

# What a command says, between the marks of a table of the page.
into_page() {
  "${@:2}" > "$scratch/table"
  sed -i -e "/^<!-- table:$1 -->\$/,/^<!-- end -->\$/{//!d}" -e "/^<!-- table:$1 -->\$/r $scratch/table" "$page/README.md"
}
indented() {
  "$@" | sed -e "s/ *$//" -e "s/^\(.\)/    \1/"
}

probes=("$page"/probe-*.json)
into_page validation "$bnlab" cost --validate "${probes[@]}"
deep=(--only model.name=backbone_unet)
into_page gpus indented "$bnlab" cost "$page/steps.json" --ranks 8,64 --step-ms 100 "${deep[@]}" \
  --only 'strategy=per_tower,averaged,sync(route=all_reduce),sync(gradient=stopped)'
# A step of one H100 with two images (../one_gpu/times.json).
h100_ms=$("$BNLAB_INTERPRETER" -c 'import json; steps = json.load(open("results/one_gpu/times.json"))["resnet50_unet_2_images"]
print(round(next(step["step_ms"][1] for step in steps if step["strategy"] == "per_tower"), 2))')
into_page h100 indented "$bnlab" cost "$page/deep.json" --ranks 8,64 --step-ms "$h100_ms"
"$bnlab" cost "$page/deep.json" --ranks 8,64,1024 --step-ms "$h100_ms" --json > "$scratch/gpu.json"
"$BNLAB_INTERPRETER" -B scripts/figures/prediction.py "$scratch/gpu.json" --out "$page/figures/efficiency"
