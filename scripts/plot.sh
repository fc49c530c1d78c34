#!/usr/bin/env bash
# Draws the figures of an experiment, or of all experiments in a results folder, from their records alone.
#   scripts/plot.sh results/quickstart [--out DIR]
# Needs a Python with matplotlib: $BNLAB_PYTHON, else the one that scripts/setup.sh made in .venv.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

python=${BNLAB_PYTHON:-$root/.venv/bin/python}
if ! command -v "$python" >/dev/null; then
  echo "plot.sh: no Python at $python; scripts/setup.sh makes one, BNLAB_PYTHON names another" >&2
  exit 3
fi
if ! "$python" -c 'import matplotlib' 2>/dev/null; then
  echo "plot.sh: $python has no matplotlib; install it there, or name another Python in BNLAB_PYTHON" >&2
  exit 3
fi
exec "$python" -B "$root/scripts/figures" "$@"
