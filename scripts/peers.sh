#!/usr/bin/env bash
# Installs the implementations that tests/peers compares with, the programs that tests/readers and tests/python read with,
# and what they import, in build/peers: a folder of their own and without their wish for a torch, so that .venv stays as
# setup.sh made it. Idempotent; 100 MB. Exit status 3 where it cannot be done: these tests are then skipped, and nothing
# else is.
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh
source scripts/versions.sh
load_settings

log=build/peers.log
folder=build/peers
wanted="$("$BNLAB_INTERPRETER" -c 'import sys; print(sys.version)') $(sha256sum <"$LOCK")"
if [ "$(cat "$folder/installed" 2>/dev/null)" != "$wanted" ]; then
  cure="Is there a network? Without it the tests in tests/peers, tests/readers and tests/python are skipped."
  : >"$log"
  rm -rf "$folder"
  locked_wheels tests >build/peers.txt
  stage "Other implementations and readers, for tests" "$BNLAB_INTERPRETER" -m pip install --no-deps --require-hashes \
    --target "$folder" --no-input --disable-pip-version-check --no-cache-dir --no-compile --progress-bar off -r build/peers.txt
  echo "$wanted" >"$folder/installed"
fi
