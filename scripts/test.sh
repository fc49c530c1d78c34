#!/usr/bin/env bash
# Builds and runs all tests that this machine can run, the C++ ones through ctest and those of the figures in Python.
# Compiles the CUDA kernels, too, unless BNLAB_CUDA=off says not to; without a GPU they are compiled only.
# Fetches the implementations that networks are compared with, if it can.
# The last line counts them: "N passed, N failed, N skipped". Exit status 0 if none failed.
#   scripts/test.sh [release|debug|asan|tsan] [ctest arguments, as -R Sync]
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh

preset=${1:-release}
shift || true
export BNLAB_CUDA=${BNLAB_CUDA:-on}
load_settings
scripts/build.sh "$preset"
scripts/peers.sh || talk "Networks are not compared with other implementations in this run."

report=$PWD/build/$preset/ctest.xml
rm -rf "$report" "build/$preset"/test_*.log "build/$preset/reports"
summary=("$report")
status=0
ctest --preset "$preset" --output-junit "$report" "$@" || status=$?

echo
if "$BNLAB_INTERPRETER" -c 'import matplotlib' 2>/dev/null; then
  talk "Testing the figures, and what is committed against its records; this takes some minutes."
  running=() logs=()
  for cases in test_figures test_results; do
    logs+=("build/$preset/$cases.log")
    BNLAB_PROGRAM=$PWD/build/$preset/bnlab "$BNLAB_INTERPRETER" "tests/figures/$cases.py" >"${logs[-1]}" 2>&1 &
    running+=("$!")
  done
  for process in "${running[@]}"; do wait "$process" || status=1; done
  cat "${logs[@]}"
  summary+=("${logs[@]}")
else
  echo "SKIPPED: the tests of the figures, because $BNLAB_INTERPRETER has no matplotlib"
  summary+=(--skipped 1)
fi
echo
"$BNLAB_INTERPRETER" scripts/count_tests.py "${summary[@]}" || status=1
exit $status
