#!/usr/bin/env bash
# Compile the main runs with XLA's compiler for CUDA, on a machine without a GPU, and print a table:
# what a GPU needs at least, and what a step makes it do. Minutes for each step of each run.
#   bash launch/check_cuda.sh                 two-stage and one-stage on CIFAR-10, on A100s
#   bash launch/check_cuda.sh h100:8 FILE ... other GPUs (a100, h100, rtx4090), these configs
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
jax=$(sed -n 's/^jax==//p' requirements.txt)
use_environment .venv-cuda "jax[cuda12]==$jax"

topologies=(a100:8)
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
