# How the scripts talk and find their settings, for them to source: one line per stage with its time, everything else
# in a log, and on failure the log's last lines with the cure. Talk goes to stderr: stdout holds results only.
# shellcheck shell=bash

talk() { echo "$*" >&2; }

fail() {
  echo "bnlab: $*" >&2
  exit 3
}

# stage TITLE COMMAND...: runs the command with its output in $log; on failure exits with 3 and says $cure.
stage() {
  local title=$1 started=$SECONDS status=0 job
  shift
  echo "== $title: $*" >>"$log"
  set -m # a group of processes of its own, which Ctrl-C ends whole; the lock on descriptor 9 is not its
  (
    set +m
    "$@"
  ) >>"$log" 2>&1 </dev/null 9>&- &
  job=$!
  set +m
  trap 'kill -- -$job 2>/dev/null; exit 130' INT
  trap 'kill -- -$job 2>/dev/null; exit 143' TERM
  if [ -t 2 ]; then
    while kill -0 $job 2>/dev/null; do
      printf '\r  %-64s %4d s' "$title" $((SECONDS - started)) >&2
      sleep 0.2
    done
    printf '\r' >&2
  fi
  wait $job || status=$?
  trap - INT TERM
  if [ $status -eq 0 ]; then
    printf '  %-64s %4d s\n' "$title" $((SECONDS - started)) >&2
  else
    printf '  %-64s failed\n\n' "$title" >&2
    local other
    other=$(grep -A4 -iE 'hash mismatch|do not match the hashes' "$log" | grep -oE -m1 '[A-Za-z0-9_.-]+==[0-9.]+' || true)
    [ -z "$other" ] || fail "what came as $other has another hash than in ${LOCK:-the lock file}: it is damaged, or not what was tested"
    tail -n 20 "$log" >&2
    printf '\nThe whole output is in %s. %s\n' "$log" "${cure:-}" >&2
    exit 3
  fi
}

# locked_wheels GROUP...: the lines of the lock file for these groups, as pip and uv read them.
locked_wheels() { sed -nE "s/  # ($(IFS='|'; echo "$*"))$//p" "$LOCK"; }

has_gpu() { nvidia-smi -L >/dev/null 2>&1 || compgen -G '/dev/nvidia[0-9]*' >/dev/null; }

# Whether the CUDA kernels are asked for, or this machine could run them: they need more wheels than the rest.
wants_cuda() {
  local wanted=${BNLAB_CUDA:-auto}
  case "${wanted,,}" in
    on) true ;;
    off) false ;;
    auto) [[ ${BNLAB_CUDA_TOOLKIT:-} = @(system|wheels) ]] || has_gpu ;;
    *) echo "BNLAB_CUDA: expected auto, on or off, got $BNLAB_CUDA" >&2; exit 2 ;;
  esac
}

# Brings the settings of the last set-up into this shell; sets up first where there was none, where the set-up or its
# versions changed since, or where the caller asks for a particular way or for CUDA kernels that it left out.
load_settings() {
  if [ -z "$(find build/toolchain.env -newer scripts/versions.sh -newer scripts/setup.sh -newer scripts/wheels 2>/dev/null)" ] ||
      [ -n "${BNLAB_PYTHON:-}${BNLAB_CUDA_TOOLKIT:-}${BNLAB_CUDA_ARCHITECTURES:-}${BNLAB_TORCH_VERSION:-}" ] ||
      ! (source build/toolchain.env && [ -x "$BNLAB_INTERPRETER" ] && { [ -z "${BNLAB_LEAN:-}" ] || ! wants_cuda; }); then
    scripts/setup.sh
  fi
  source build/toolchain.env
}
