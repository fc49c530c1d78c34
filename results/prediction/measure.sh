#!/usr/bin/env bash
# Measures this page's probes, here, and writes its tables and its figure: about 25 minutes on quiet cores.
#   results/prediction/measure.sh [SECONDS]      SECONDS: of the probe of two ranks; 400 by default
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
seconds=${1:-400}
page=results/prediction
bnlab=build/release/bnlab
few=strategy=per_tower,sync,shuffle
few+=,'sync(route=reduce_broadcast)'

"$bnlab" probe "$page/steps.json" --ranks 1 --device cpu --seconds "$((seconds / 8))" --out "$page/probe-1.json" > /dev/null
for ranks in 2 4; do
  "$bnlab" probe "$page/steps.json" --ranks "$ranks" --device cpu --seconds "$((seconds * ranks / 2))" --threads 1 --largest-mb 16 \
    --out "$page/probe-$ranks.json" > /dev/null
done
for delay in 100 1000 5000; do
  "$bnlab" probe "$page/steps.json" --ranks 2 --device cpu --exchange shared_memory --threads 1 --largest-mb 1 --only "$few" \
    --seconds "$((seconds / 4))" --delay-us "$delay" --bandwidth-mb 1000 --out "$page/probe-2-delay-$delay.json" > /dev/null
done
"$page/publish.sh"
