#!/usr/bin/env bash
# Run istanas_jax on the CUDA GPUs of this machine: one process, all GPUs.
#   bash launch/cuda.sh                     the main job, as launch/local.sh
#   bash launch/cuda.sh run --config ...    any command of `python -m istanas_jax`
#   bash launch/cuda.sh --dry-run ...       print the commands, do nothing
#
# Several hosts: the same command on each, with a folder that they share. Slurm needs no flags.
#   bash launch/cuda.sh run ... --coordinator HOST:PORT --processes N --process I
#   srun --ntasks-per-node=1 bash launch/cuda.sh run ...
#
# The CUDA libraries come with jax, into .venv-cuda; only the driver must be there. CUDA 13 is for
# drivers from 580 and GPUs from compute capability 7.5 on, CUDA 12 for drivers from 525 on.
# JAX_CUDA=cuda12 (or cuda13) decides instead.

case "${1:-}" in
  -h | --help)
    sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit
    ;;
  --dry-run)
    dry_run=yes
    shift
    ;;
esac
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

fail() {
  echo "launch/cuda.sh: $1" >&2
  exit 2
}

# Choose by the oldest GPU and driver that nvidia-smi lists: "580.65.06, 9.0".
choose_cuda() {
  local driver capability chosen=cuda13
  while IFS=', ' read -r driver capability; do
    if ! [[ "$driver $capability" =~ ^[0-9]+\.[0-9.]+\ [0-9]+\.[0-9]+$ ]]; then
      fail "nvidia-smi names no driver and GPU, but \"$driver $capability\"; set JAX_CUDA."
    elif [ "${driver%%.*}" -lt 525 ]; then
      fail "the NVIDIA driver is $driver, and jax needs 525 or newer."
    elif [ "${driver%%.*}" -lt 580 ] || [ "${capability/./}" -lt 75 ]; then
      chosen=cuda12
    fi
  done <<<"$1"
  echo "$chosen"
}

query=(nvidia-smi "--query-gpu=driver_version,compute_cap" "--format=csv,noheader")
cuda=${JAX_CUDA:-}
case "$cuda" in
  "" | cuda12 | cuda13) ;;
  *) fail "JAX_CUDA is \"$cuda\", it must be cuda12 or cuda13." ;;
esac
if [ -n "${dry_run:-}" ]; then
  show "${query[@]}"
  if [ -z "$cuda" ]; then
    cuda=cuda13
    echo "# cuda12 below, if that names a driver before 580 or a GPU before 7.5"
  fi
elif ! command -v nvidia-smi >/dev/null; then
  fail "there is no CUDA GPU here: nvidia-smi is missing; launch/local.sh runs on the CPU."
elif ! gpus=$("${query[@]}" 2>/dev/null) || [ -z "$gpus" ]; then
  fail "nvidia-smi finds no CUDA GPU; launch/local.sh runs on the CPU."
elif [ -z "$cuda" ]; then
  cuda=$(choose_cuda "$gpus")
fi

jax=$(sed -n 's/^jax==//p' requirements.txt)
use_environment .venv-cuda "jax[$cuda]==$jax"
# Fail, not fall back to the CPU, if jax cannot use the GPUs.
export JAX_PLATFORMS=${JAX_PLATFORMS:-cuda,cpu}
if [ $# -eq 0 ]; then
  set -- run --config configs/digits.py --workdir runs/digits
fi
if [ -n "${dry_run:-}" ]; then
  show env JAX_PLATFORMS="$JAX_PLATFORMS" .venv-cuda/bin/python -m istanas_jax "$@"
else
  exec python -m istanas_jax "$@"
fi
