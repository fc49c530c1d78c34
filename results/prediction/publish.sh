#!/usr/bin/env bash
# Writes the tables, their rows and the figure of this page from the probes that lie beside it.
#   results/prediction/publish.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/stages.sh
load_settings
page=results/prediction
bnlab=${BNLAB_PROGRAM:-build/release/bnlab}
scratch=$(mktemp -d)
trap 'rm -r "$scratch"' EXIT

# table NAME ARGUMENT...: a table of predicted.py, between the marks of its name on the page.
table() {
  "$BNLAB_INTERPRETER" -B scripts/figures/predicted.py "$@" > "$scratch/table"
  sed -i -e "/^<!-- table:$1 -->\$/,/^<!-- end -->\$/{//!d}" -e "/^<!-- table:$1 -->\$/r $scratch/table" "$page/README.md"
}

"$bnlab" cost --validate "$page"/probe-*.json --json > "$scratch/checked.json"
table quality "$scratch/checked.json" --csv "$page/quality.csv"
table steps "$scratch/checked.json"
deep=(--only model.name=backbone_unet)
"$bnlab" cost "$page/steps.json" --ranks 8,64 --step-ms 100 "${deep[@]}" \
  --only 'strategy=per_tower,averaged,sync(route=all_reduce),sync(gradient=stopped)' --json > "$scratch/gpus.json"
# A step of one H100 with two images (../one_gpu/times.json).
h100_ms=$("$BNLAB_INTERPRETER" -c 'import json; steps = json.load(open("results/one_gpu/times.json"))["resnet50_unet_2_images"]
print(round(next(step["step_ms"][1] for step in steps if step["strategy"] == "per_tower"), 2))')
"$bnlab" cost "$page/deep.json" --ranks 8,64,1024 --step-ms "$h100_ms" --json > "$scratch/h100.json"
"$bnlab" cost "$page/deep.json" --ranks 8 --step-ms "$h100_ms" --path symmetric --json > "$scratch/symmetric.json"
table price "ResNet-18, 60 exchanges, a step of 100 ms=$scratch/gpus.json" \
  "ResNet-50, 126 exchanges, a step of $h100_ms ms=$scratch/h100.json" \
  "The same over symmetric memory=$scratch/symmetric.json" --csv "$page/price.csv"
"$BNLAB_INTERPRETER" -B scripts/figures/prediction.py "$scratch/h100.json" --out "$page/figures/efficiency"
