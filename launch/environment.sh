# Sourced by the other scripts: makes or reuses .venv in the checkout and puts it on the PATH.
# PYTHON=/path/to/python3 picks the interpreter; by default the first that is new enough.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.11 python3.12 python3.13 python3.14}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "istanas_jax needs Python 3.11 or newer; found $(python3 --version 2>&1 || true)." >&2
  exit 1
}

build_environment() {
  local python log
  python=$(find_python)
  log=$(mktemp)
  echo "Installing the packages of requirements.txt into .venv (once, about a minute) ..." >&2
  rm -rf .venv
  if ! "$python" -m venv .venv >"$log" 2>&1; then
    rm -rf .venv
    echo "$python cannot make a virtual environment; install its venv module (log: $log)." >&2
    exit 1
  fi
  if ! .venv/bin/pip install --disable-pip-version-check -r requirements.txt >"$log" 2>&1 ||
    ! .venv/bin/pip install --disable-pip-version-check --no-deps --no-build-isolation -e . \
      >>"$log" 2>&1; then
    echo "pip could not install requirements.txt; is the package index reachable? (log: $log)" >&2
    exit 1
  fi
  rm -f "$log"
  # Last, so that an interrupted build is done again.
  cat requirements.txt pyproject.toml >.venv/built-from
}

if ! cat requirements.txt pyproject.toml | cmp -s - .venv/built-from; then
  build_environment
fi
export PATH="$PWD/.venv/bin:$PATH"
