#!/usr/bin/env bash
# Runs on every host of a TPU slice, called by tpu_pod.py. The job survives a lost connection.
#   install                 the environment, and Python itself where it is too old
#   start KEY ARGUMENT...   begin `python -m istanas_jax ARGUMENT...`
#   status                  one line: "istanas-job HOST KEY none|running|lost|exited CODE"
#   size, output OFFSET     length of the job's output so far; its bytes from OFFSET on
#   failure                 the last lines, if the job failed here
#   stop SIGNAL             TERM makes the job save and end
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
job=../job
UV=0.13.7 # brings a Python where there is none that is new enough

boot() {
  cat /proc/sys/kernel/random/boot_id
}

# Whoever waits for the job is asked for before its exit code, which it writes last.
state() {
  if [ -f "$job/pid" ] && [ "$(cat "$job/boot")" = "$(boot)" ] &&
    kill -0 "$(cat "$job/waiter")" 2>/dev/null; then
    echo running
  elif [ -f "$job/exit" ]; then
    echo "exited $(cat "$job/exit")"
  elif [ -f "$job/pid" ]; then
    echo lost
  else
    echo none
  fi
}

install() {
  # shellcheck source=../environment.sh
  source launch/environment.sh
  if ! "$(find_python 2>/dev/null)" -c 'import ensurepip, venv' 2>/dev/null; then
    python3 -m pip install --quiet --user "uv==$UV"
    local uv
    uv="$(python3 -m site --user-base)/bin/uv"
    "$uv" python install --quiet 3.11
    PYTHON=$("$uv" python find --managed-python 3.11)
  fi
  use_environment .venv-tpu -r requirements-tpu.txt
}

start() {
  if [ "$(state)" = running ]; then
    echo "a job is running already on $(hostname)" >&2
    exit 3
  fi
  rm -rf "$job"
  mkdir "$job"
  echo "$1" >"$job/key"
  boot >"$job/boot"
  setsid nohup bash launch/tpu/tpu_worker.sh work "${@:2}" </dev/null >/dev/null 2>&1 &
  until [ -f "$job/pid" ]; do
    sleep 0.1
  done
}

# Run the job to its end, whoever is still there to see it.
work() {
  local code=0
  # Fail, not fall back to the CPU, if jax cannot use the TPUs.
  JAX_PLATFORMS=${JAX_PLATFORMS:-tpu,cpu} .venv-tpu/bin/python -m istanas_jax "$@" \
    >"$job/output" 2>&1 &
  echo $$ >"$job/waiter"
  echo $! >"$job/pid.new"
  mv "$job/pid.new" "$job/pid"
  wait $! || code=$?
  echo "$code" >"$job/exit.new"
  mv "$job/exit.new" "$job/exit"
}

case "$1" in
  install) install ;;
  start) start "${@:2}" ;;
  work) work "${@:2}" ;;
  status) echo "istanas-job $(hostname) $(cat "$job/key" 2>/dev/null || echo -) $(state)" ;;
  size) wc -c <"$job/output" ;;
  output) tail -c "+$(($2 + 1))" "$job/output" | head -c 1000000 || true ;;
  failure)
    if [[ "$(state)" != "exited 0" ]]; then
      tail -n 15 "$job/output" | sed "s/^/$(hostname): /"
    fi
    ;;
  stop)
    if [ "$(state)" = running ]; then
      kill -s "$2" "$(cat "$job/pid")" || true # it may just have ended
    fi
    ;;
  *)
    sed -n '2,/^set/s/^# \{0,1\}//p' launch/tpu/tpu_worker.sh >&2
    exit 2
    ;;
esac
