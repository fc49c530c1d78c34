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
load_settings
BNLAB_CUDA=${BNLAB_CUDA:-on} scripts/build.sh "$preset"
scripts/peers.sh || talk "Networks are not compared with other implementations in this run."

report=$PWD/build/$preset/ctest.xml
figures_log=build/$preset/test_figures.log
rm -rf "$report" "$figures_log" "build/$preset/reports"
summary=("$report")
status=0
ctest --preset "$preset" --output-junit "$report" "$@" || status=$?

echo
if "$BNLAB_INTERPRETER" -c 'import matplotlib' 2>/dev/null; then
  BNLAB_PROGRAM=$PWD/build/$preset/bnlab "$BNLAB_INTERPRETER" tests/figures/test_figures.py 2>&1 | tee "$figures_log" || status=1
  summary+=("$figures_log")
else
  echo "SKIPPED: the tests of the figures, because $BNLAB_INTERPRETER has no matplotlib"
  summary+=(--skipped 1)
fi
echo
"$BNLAB_INTERPRETER" scripts/count_tests.py "${summary[@]}" || status=1
exit $status
