#!/usr/bin/env bash
# A matrix on several machines that share a file system and can be reached by ssh, without a scheduler: GNU parallel
# starts bnlab once on each, and each takes runs that nobody has, until none is left.
#
#   HOSTS=node1,node2 scripts/cluster/parallel.sh experiments/overviews/tradeoff.json --data /shared/data
#
# ":" among the hosts is this machine. At the end bnlab runs here once more: it does what is left, if anything is, prints
# the table, and its exit status is this script's.
set -euo pipefail
: "${HOSTS:?name the machines, as in HOSTS=node1,node2}"

program=$(realpath "${BNLAB:-build/release/bnlab}")
parallel --quote --nonall --tag --line-buffer --sshlogin "$HOSTS" --workdir "$PWD" "$program" run "$@" >&2 || true
exec "$program" run "$@"
