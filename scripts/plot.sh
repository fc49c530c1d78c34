#!/usr/bin/env bash
# Draws the figures of an experiment, or of all experiments in a results folder, from what `bnlab report` says of it.
#   scripts/plot.sh results/quickstart [--spec SPEC] [--out DIR] [--strategies LABEL...] [--figures NAME...] [--bare]
# Of a folder that `bnlab predict` has written it draws the contact sheet, with titles for the runs and names for the classes
# if wanted.
#   scripts/plot.sh predictions [--titles TEXT...] [--classes TEXT...]
# The spec is the folder's own (spec.json), else NAME.json below experiments/, unless --spec names another. Needs
# build/release/bnlab, or what BNLAB_PROGRAM names, and a Python with matplotlib: BNLAB_PYTHON, else .venv of setup.sh.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

lacking() {
  echo "plot.sh: $*" >&2
  exit 3
}

[ $# -gt 0 ] && [ "${1#-}" = "$1" ] || { sed -n '2,8s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" >&2 && exit 2; }
folder=${1%/} spec= out= drawing=()
shift
while [ $# -gt 0 ]; do
  case $1 in
    --spec) spec=$2 && shift 2 ;;
    --out) out=$2 && shift 2 ;;
    *) drawing+=("$1") && shift ;;
  esac
done

program=${BNLAB_PROGRAM:-$root/build/release/bnlab}
[ -x "$program" ] || lacking "no program at $program; scripts/build.sh release bnlab builds it"
python=${BNLAB_PYTHON:-$root/.venv/bin/python}
command -v "$python" >/dev/null ||
  lacking "no Python at $python; scripts/setup.sh makes one, BNLAB_PYTHON names another"
"$python" -c 'import matplotlib' 2>/dev/null ||
  lacking "$python has no matplotlib; install it there, or name another Python in BNLAB_PYTHON"

# draw FOLDER SPEC OUT
draw() {
  if [ "$(basename "$2" .json)" != "$(basename "$1")" ]; then
    echo "plot.sh: $2 is not the spec of $1" >&2
    return 2
  fi
  "$program" report "$2" --results "$(dirname "$1")" --format json |
    "$python" -B "$root/scripts/figures" --out "$3" ${drawing[@]+"${drawing[@]}"}
}

if [ -f "$folder/predictions.json" ]; then
  exec "$python" -B "$root/scripts/figures/contact_sheet.py" "$folder" ${drawing[@]+"${drawing[@]}"}
fi

holds_records() { compgen -G "$1/*/*/record.json" >/dev/null; }
spec_of() { [ -f "$1/spec.json" ] && echo "$1" || find "$root/experiments" -name "$(basename "$1").json"; }

if holds_records "$folder"; then
  draw "$folder" "${spec:-$(spec_of "$folder")}" "${out:-$folder/figures}"
  exit
fi
status=0 found=
for each in "$folder"/*; do
  holds_records "$each" || continue
  found=1
  into=$each/figures
  [ -z "$out" ] || into=$out/$(basename "$each")
  draw "$each" "$(spec_of "$each")" "$into" || status=1
done
if [ -z "$found" ]; then
  echo "plot.sh: $folder: no records found; expected $folder/[EXPERIMENT/]RUN_ID/PLACEMENT/record.json" >&2
  exit 1
fi
exit $status
