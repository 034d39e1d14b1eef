#!/usr/bin/env bash
# Lint and test. Arguments go to pytest: bash launch/test.sh tests/test_lasso.py -k oracle
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

ruff check .
ruff format --check .
exec python -m pytest "$@"
