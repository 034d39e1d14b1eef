"""GPUs that need not be there: what XLA's CUDA compiler must know of them, and their roofline.

`gpus.json` has the published figures. The compiler gets them as the text of XLA's
`GpuTargetConfigProto`; it then compiles without a GPU, and without trying kernels out.
"""

import functools
import json
from pathlib import Path

GPUS_PER_HOST = 8  # more of them are hosts of so many
# The libraries that jax[cuda12] brings along; the compiler asks which versions it may count on.
CUDNN, CUDA = (9, 8, 0), (12, 8, 0)
# The same for every GPU from compute capability 8.0 on.
LIMITS = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 49_152,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 65_535,
    "block_dim_limit_z": 65_535,
    "registers_per_core_limit": 65_536,
    "registers_per_block_limit": 65_536,
}
FIGURES = (
    "core_count",
    "fpus_per_core",
    "threads_per_core_limit",
    "shared_memory_per_core",
    "shared_memory_per_block_optin",
    "l2_cache_size",
    "memory_bandwidth",
    "device_memory_size",
    "clock_rate_ghz",
)


@functools.cache
def gpus() -> dict[str, dict]:
    """The GPUs of `gpus.json`, by the names that topologies have for them."""
    table = json.loads((Path(__file__).parent / "gpus.json").read_text())
    return {name: gpu for name, gpu in table.items() if name != "about"}


def target_config(name: str) -> str:
    """XLA's description of the GPU, as protocol-buffer text."""
    gpu = gpus()[name]
    major, minor = gpu["compute_capability"]
    lines = [f"  {key}: {gpu[key]}" for key in FIGURES]
    lines += [f"  {key}: {value}" for key, value in LIMITS.items()]
    return "\n".join(
        [
            "gpu_device_info {",
            f"  cuda_compute_capability {{ major: {major} minor: {minor} }}",
            *lines,
            "}",
            'platform_name: "CUDA"',
            f"dnn_version_info {{ {_version(CUDNN)} }}",
            f"runtime_version {{ {_version(CUDA)} }}",
            f'device_description_str: "{gpu["name"]}"',
            "",
        ]
    )


def _version(numbers: tuple[int, int, int]) -> str:
    return " ".join(
        f"{part}: {n}" for part, n in zip(("major", "minor", "patch"), numbers, strict=True)
    )


def hosts_and_gpus(count: int) -> tuple[int, int]:
    """How so many GPUs are divided: the number of hosts, and GPUs of each."""
    if count <= GPUS_PER_HOST:
        return 1, count
    if count % GPUS_PER_HOST:
        raise ValueError(
            f"{count} GPUs are more than the {GPUS_PER_HOST} of a host, and no multiple of them"
        )
    return count // GPUS_PER_HOST, GPUS_PER_HOST


def roofline_seconds(
    name: str, moved_bytes: float, multiply_adds: float, *, dtype: str, precision: str
) -> float:
    """The least time in which the GPU moves these bytes and does this work, one beside the other.

    Products of float32 are TF32's unless a higher precision is asked for.
    """
    gpu = gpus()[name]
    peak = gpu["peak"][dtype if dtype == "bfloat16" or precision == "default" else "highest"]
    return max(moved_bytes / gpu["memory_bandwidth"], 2 * multiply_adds / peak)
