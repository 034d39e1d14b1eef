#!/usr/bin/env bash
# Lint and test. Arguments go to pytest: bash launch/test.sh tests/test_lasso.py -k oracle
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
use_environment .venv
bash launch/browser.sh

ruff check .
ruff format --check .
# Two processes: compiling, most of the work, uses one core each. A file stays in one of them.
exec python -m pytest -n 2 --dist loadfile --no-loadscope-reorder "$@"
