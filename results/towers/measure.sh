#!/usr/bin/env bash
# Measures this page's times, here, and writes its table and its figure: about a quarter of an hour on two quiet cores, 10 GiB of memory.
#   results/towers/measure.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source scripts/stages.sh
load_settings
"$BNLAB_INTERPRETER" tests/bench/towers_bench.py --repeats 3 --most-ranks 64 --out results/towers/times.json
results/towers/publish.sh
