#!/usr/bin/env bash
# Lint and test. --quick, as the first argument, leaves out whole runs and big compilations; the
# others go to pytest: bash launch/test.sh --quick tests/sparse_coding -k oracle
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
use_environment .venv
bash launch/browser.sh

ruff check .
ruff format --check .
if [ "${1:-}" = --quick ]; then
  set -- -m "not slow" "${@:2}"
fi
# Two processes: compiling, most of the work, uses one core each. A file stays in one of them.
# Memory comes in large pages, as for commands (istanas_jax/devices/xla_settings.py).
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}
exec python -m pytest -n 2 --dist loadfile --no-loadscope-reorder "$@"
