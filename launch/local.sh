#!/usr/bin/env bash
# Run istanas_jax on this machine: CPU, or whatever accelerator jax finds.
#   bash launch/local.sh                the main job: two-stage search and training on digits
#   bash launch/local.sh bench --help   any command of `python -m istanas_jax`
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
use_environment .venv

if [ $# -eq 0 ]; then
  set -- run --config configs/digits.py --workdir runs/digits
fi
exec python -m istanas_jax "$@"
