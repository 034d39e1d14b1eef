#!/usr/bin/env bash
# Compile the main runs with the TPU compiler, on a machine without a TPU, and print a table: what
# a chip needs and how long it may take. Minutes for each step of each run.
#   bash launch/check_tpu.sh                    two-stage and one-stage on CIFAR-10, both slices
#   bash launch/check_tpu.sh v5e:4x8 FILE ...   one slice, these configs
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
use_environment .venv-tpu -r requirements-tpu.txt

topologies=(v5e:2x2 v5e:4x8)
configs=(configs/cifar10_two_stage.py configs/cifar10_one_stage.py)
if [ $# -gt 0 ]; then
  topologies=("$1")
  shift
fi
if [ $# -gt 0 ]; then
  configs=("$@")
fi
head=2 # lines of the table's head, once
for topology in "${topologies[@]}"; do
  for config in "${configs[@]}"; do
    table=$(python -m istanas_jax plan --config "$config" --topology "$topology" --markdown)
    if [ "$head" -gt 0 ]; then
      head -n "$head" <<<"$table"
      head=0
    fi
    tail -n +3 <<<"$table"
  done
done
