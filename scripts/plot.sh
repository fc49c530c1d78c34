#!/usr/bin/env bash
# Draws the figures of an experiment, or of all experiments in a results folder, from what `bnlab report` says of it.
#   scripts/plot.sh results/quickstart [--spec SPEC] [--out DIR] [--strategies LABEL...] [--figures NAME...] [--bare] [--png]
# Of a folder that `bnlab predict` has written it draws the contact sheet, with titles for the runs and names for the classes
# if wanted, and with wrong pixels in red.
#   scripts/plot.sh predictions [--titles TEXT...] [--classes TEXT...] [--errors]
# The spec is the folder's own (spec.json), else NAME.json below experiments/, unless --spec names another. Needs
# build/release/bnlab, or what BNLAB_PROGRAM names, and a Python with matplotlib: BNLAB_PYTHON, else .venv of setup.sh.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

lacking() {
  echo "plot.sh: $*" >&2
  exit 3
}

# wrong TEXT: of a command line that cannot be done.
wrong() {
  echo "plot.sh: $*" >&2
  exit 2
}

manual() { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; }

case ${1:-} in
  -h | --help) manual; exit 0 ;;
  "" | -*) manual >&2; exit 2 ;;
esac
folder=${1%/} spec= out= drawing=()
shift
while [ $# -gt 0 ]; do
  case $1 in
    --spec | --out)
      [[ $# -gt 1 && -n $2 && $2 != -* ]] || wrong "$1: expected a path behind it, got ${2:-nothing}"
      [ "$1" = --spec ] && spec=$2 || out=$2
      shift 2
      ;;
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

no_folder="expected a folder that can be made and written to"
can_write() {
  local file
  mkdir -p "$1" 2>/dev/null && file=$(mktemp -p "$1" .plot.XXXXXX 2>/dev/null) && rm "$file"
}

# name_of PATH: of an experiment, by its folder or its spec.
name_of() { basename "$(realpath -ms "$1")" .json; }

# draw FOLDER SPEC OUT
draw() {
  if [ "$(name_of "$2")" != "$(name_of "$1")" ]; then
    echo "plot.sh: $2 is not the spec of $1" >&2
    return 2
  fi
  can_write "$3" || wrong "$3: $no_folder"
  "$program" report "$2" --results "$(dirname "$(realpath -s "$1")")" --format json |
    "$python" -B "$root/scripts/figures" --out "$3" ${drawing[@]+"${drawing[@]}"}
}

if [ -f "$folder/predictions.json" ]; then
  exec "$python" -B "$root/scripts/figures/contact_sheet.py" "$folder" ${drawing[@]+"${drawing[@]}"}
fi

[ -z "$out" ] || can_write "$out" || wrong "--out $out: $no_folder"

holds_records() { [ -f "$1/runs.jsonl" ] || compgen -G "$1/*/*/record.json" >/dev/null; }

# spec_of FOLDER: its own spec, else the one below experiments/ that has its name.
spec_of() {
  [ ! -f "$1/spec.json" ] || { realpath -s "$1"; return; }
  local name specs
  name=$(name_of "$1").json
  mapfile -t specs < <(find "$root/experiments" -name "$name" | sort)
  case ${#specs[@]} in
    0) wrong "$1: no spec was found, neither spec.json in it nor $name below $root/experiments; --spec names one" ;;
    1) echo "${specs[0]}" ;;
    *) wrong "$1: several specs were found, of which --spec names one: ${specs[*]}" ;;
  esac
}

if holds_records "$folder"; then
  [ -n "$spec" ] || spec=$(spec_of "$folder") || exit
  draw "$folder" "$spec" "${out:-$folder/figures}"
  exit
fi
status=0 found=
for each in "$folder"/*; do
  holds_records "$each" || continue
  found=1
  into=$each/figures
  [ -z "$out" ] || into=$out/$(basename "$each")
  { spec=$(spec_of "$each") && draw "$each" "$spec" "$into"; } || status=1
done
if [ -z "$found" ]; then
  echo "plot.sh: $folder: no records found; expected $folder/[EXPERIMENT/]runs.jsonl or RUN_ID/PLACEMENT/record.json" >&2
  exit 1
fi
exit $status
