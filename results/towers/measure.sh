#!/usr/bin/env bash
# Measures this page's times, here, and writes its table and its figure: about five minutes on two quiet cores.
#   results/towers/measure.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/stages.sh
load_settings
"$BNLAB_INTERPRETER" tests/bench/towers_bench.py --repeats 3 --most-ranks 16 --out results/towers/times.json
results/towers/publish.sh
