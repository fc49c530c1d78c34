#!/usr/bin/env bash
# Checks that all C++ and CUDA sources are laid out as .clang-format says, that their comments keep to its columns, which
# clang-format does not look at, and that the scripts parse. With --fix it lays the sources out instead; comments are
# wrapped by hand. clang-format's major version matters: other ones break lines elsewhere.
#   scripts/check_format.sh [--fix]
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/versions.sh
source scripts/stages.sh
wanted=$(sed -n "s,^clang-format==\([0-9]*\).*,\1,p" "$LOCK")

formatter=
seen=
for candidate in .venv/bin/clang-format "clang-format-$wanted" clang-format; do
  version=$("$candidate" --version 2>/dev/null) || continue
  seen+="  $candidate: $version"$'\n'
  if [[ "$version" =~ version\ $wanted\. ]]; then
    formatter=$candidate
    break
  fi
done
[ -n "$formatter" ] || fail "clang-format $wanted is needed. Found:
${seen:-  none
}scripts/setup.sh installs it into .venv; Debian 13 also has it as the package clang-format-$wanted."

mapfile -t sources < <(git ls-files --cached --others --exclude-standard '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh')
mapfile -t scripts < <(git ls-files --cached --others --exclude-standard '*.sh' .ci/run)
[ ${#sources[@]} -gt 0 ] || fail "no sources found: is this a git checkout?"

if [ "${1:-}" = --fix ]; then
  "$formatter" -i "${sources[@]}"
  exit
fi
status=0
"$formatter" --dry-run -Werror "${sources[@]}" || status=1
# Comments of two words or more, on lines that are too long. What stands in strings is no comment.
columns=$(sed -n 's/^ColumnLimit: //p' .clang-format)
string='"(?:\\.|[^"\\])*"'
if LC_ALL=C.UTF-8 grep -nP "^(?=.{$((columns + 1))})(?:[^\"/]|$string|/(?!/))*//\s*\S+\s+\S" "${sources[@]}" >&2; then
  talk "These comments are longer than $columns columns."
  status=1
fi
for script in "${scripts[@]}"; do
  bash -n "$script" || status=1
done
if [ $status -eq 0 ]; then
  talk "The layout of ${#sources[@]} sources and the syntax of ${#scripts[@]} scripts are right."
else
  talk "scripts/check_format.sh --fix lays the sources out."
fi
exit $status
