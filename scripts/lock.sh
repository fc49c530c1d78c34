#!/usr/bin/env bash
# Writes scripts/wheels/torch-VERSION.lock: every wheel that set-up and tests fetch with that LibTorch, one a line, with
# the hashes of its files for Linux and what fetches it: uv, first (no CUDA), cuda, nvcc or tests. Commit the file.
#   scripts/lock.sh                                 for the version in versions.sh
#   BNLAB_TORCH_VERSION=2.16.0 scripts/lock.sh      for another one
set -euo pipefail
[[ ${1:-} != -h && ${1:-} != --help ]] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/versions.sh

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
list() { printf '"%s", ' "$@"; }
# shellcheck disable=SC2086
cat >"$folder/pyproject.toml" <<END
[project]
name = "wheels"
version = "0"
requires-python = ">=3.11,<3.15"
[dependency-groups]
uv = ["$UV"]
first = [$(list $LAYOUT_AND_FIGURES "cuda-toolkit[cudart,cupti]")]
cuda = ["torch==$TORCH_VERSION"]
nvcc = ["cuda-toolkit[nvcc,cccl,crt,nvvm]"]
tests = [$(list $PEERS $READERS)]
[tool.uv]
package = false
no-build = true
environments = ["sys_platform == 'linux' and platform_machine == 'x86_64'", "sys_platform == 'linux' and platform_machine == 'aarch64'"]
END
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "$UV"
cd "$folder"
venv/bin/uv lock -q
for group in uv first cuda nvcc tests; do
  venv/bin/uv export -q --frozen --no-header --no-annotate --only-group $group | sed -z 's/ \\\n  */ /g' |
    sed "s/ ; (platform_machine == 'aarch64' or platform_machine == 'x86_64') and sys_platform == 'linux'//; s/$/  # $group/"
done | sed '/^torch==/s/# cuda$/# first/' | awk '!seen[$1]++' >lock
cd - >/dev/null
mkdir -p scripts/wheels
mv "$folder/lock" "scripts/wheels/torch-$TORCH_VERSION.lock"
