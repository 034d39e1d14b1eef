# shellcheck shell=bash
# Sourced by the other scripts, in the checkout: virtual environments that are made once.
#   use_environment DIR [ARGUMENT...]   make or reuse DIR, and put it on the PATH; arguments go to
#                                       `pip install` besides those of requirements.txt
# PYTHON=/path/to/python3 picks the interpreter; the default is the first that works of Python 3.12,
# 3.11, 3.13, 3.14 and whatever python3 is, if that is new enough.
# With dry_run=yes the commands are printed and not run.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3.12 python3.11 python3.13 python3.14 python3}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "istanas_jax needs Python 3.11 or newer; found $(python3 --version 2>&1 || true)." >&2
  exit 1
}

show() {
  printf '%q ' "$@" | sed 's/ $//'
  echo
}

# Run a command whose output goes to $log; a dry run only prints it.
step() {
  if [ -n "${dry_run:-}" ]; then
    show "$@"
  else
    "$@" >>"$log" 2>&1
  fi
}

# Print everything that an environment depends on.
built_from() {
  local argument
  cat requirements.txt pyproject.toml
  for argument in "$@"; do
    if [ -f "$argument" ]; then
      cat "$argument"
    else
      echo "$argument"
    fi
  done
}

is_built() {
  local directory=$1
  shift
  built_from "$@" | cmp -s - "$directory/built-from"
}

build_environment() {
  local directory=$1 python log
  shift
  python=$(find_python)
  if [ -z "${dry_run:-}" ]; then
    log=$(mktemp)
    echo "Installing the packages of requirements.txt${*:+ and $*} into $directory" \
      "(once, a minute or more) ..." >&2
  fi
  step rm -rf "$directory"
  if ! step "$python" -m venv "$directory"; then
    rm -rf "$directory"
    echo "$python cannot make a virtual environment; install its venv module (log: $log)." >&2
    exit 1
  fi
  if ! step "$directory/bin/pip" install --disable-pip-version-check -r requirements.txt "$@" ||
    ! step "$directory/bin/pip" install --disable-pip-version-check --no-deps \
      --no-build-isolation -e .; then
    echo "pip could not install requirements.txt; is the package index reachable? (log: $log)" >&2
    exit 1
  fi
  if [ -z "${dry_run:-}" ]; then
    rm -f "$log"
    echo '*' >"$directory/.gitignore"
    # Last, so that an interrupted build is done again.
    built_from "$@" >"$directory/built-from"
  fi
}

use_environment() {
  local directory=$1
  if ! is_built "$@"; then
    if [ -z "${dry_run:-}" ] && command -v flock >/dev/null; then
      # Hosts that share the checkout build it one after the other, that is once.
      exec 9>>requirements.txt
      flock 9 || true
    fi
    is_built "$@" || build_environment "$@"
    exec 9>&-
  fi
  export PATH="$PWD/$directory/bin:$PATH"
}
