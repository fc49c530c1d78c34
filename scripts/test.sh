#!/usr/bin/env bash
# Builds and runs all tests that this machine can run, through ctest, and says before it starts how long they will take.
# Compiles the CUDA kernels, too, unless BNLAB_CUDA=off says not to; without a GPU they are compiled only.
# Fetches the implementations that networks are compared with, if it can.
# The last line counts the cases: "N passed, N failed, N skipped". Exit status 0 if none failed.
#   scripts/test.sh [release|debug|asan|tsan]
#   scripts/test.sh release -L quick         no simulated GPUs, faults, launchers, peers, figures: four minutes, once built
#   scripts/test.sh release -L long          the others
#   scripts/test.sh release -R Sync          suites and tests of that name, and builds what they need alone; other words
#                                            go to ctest as well
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/stages.sh

preset=${1:-release}
shift || true
export BNLAB_CUDA=${BNLAB_CUDA:-on}
load_settings
for ((place = 1; place < $#; ++place)); do
  [[ ${!place} != -R && ${!place} != --tests-regex ]] || BNLAB_TESTS=${*:place+1:1}
done
BNLAB_TESTS=${BNLAB_TESTS:-}
BNLAB_TESTS=${BNLAB_TESTS%%/[0-9]*of*}  # a shard that failed, by its name
export BNLAB_TESTS  # cmake/discover_tests.cmake lists the suites of that name
scripts/build.sh "$preset" build.ninja
files=$("$BNLAB_INTERPRETER" scripts/needed_by_tests.py "$preset" "$@")
[ $# -gt 0 ] || files=all
# shellcheck disable=SC2086
[ -z "$files" ] || scripts/build.sh "$preset" $files
scripts/peers.sh || talk "Networks are not compared with other implementations in this run."

report=$PWD/build/$preset/ctest.xml
rm -rf "$report" "build/$preset/reports"
status=0
ctest --preset "$preset" --output-junit "$report" --test-output-truncation head "$@" || status=$?
echo
"$BNLAB_INTERPRETER" scripts/count_tests.py "$report" || status=1
exit $status
