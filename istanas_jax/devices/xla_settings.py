"""Settings of XLA and glibc, which read them from the environment when they start.

A setting is added to what the user has set, unless the user has set the same one.
"""

import os
import sys
import warnings

from jaxlib import version

# XLA allocates the memory of a program anew at every step: in pages of 4 KiB its first touch and
# the look-ups cost a search step about a sixth of its time.
HUGE_PAGES = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb", "1", ":")
# Vectors of 512 bits, where the processor has them, save a twentieth.
WIDE_VECTORS = ("XLA_FLAGS", "--xla_cpu_prefer_vector_width", "512", " ")
# These jaxlibs sum wrongly on CPUs when a small product is fused into the sum (jax issue 39103).
# Without fusions of that kind they are right, and as fast.
WRONG_SUMS = ("0.10.2",)
NO_FUSED_SUMS = ("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type", "", " ")


# Where a CPU acts as several devices, one that waits for the others holds a thread of XLA's pool.
# With a thread per core the others may have none left, and a recovery of z waits forever.
DEVICES = "JAX_NUM_CPU_DEVICES"
THREADS = "NPROC"


def enough_threads(devices: int | None = None) -> None:
    """Give XLA a thread more for each CPU device, if there are several; by default by DEVICES."""
    given = os.environ.get(DEVICES, "")
    devices = devices or (int(given) if given.isdigit() else 1)
    if devices > 1:
        os.environ.setdefault(THREADS, str((os.cpu_count() or 1) + devices))


def add(variable: str, name: str, value: str, separator: str) -> bool:
    """Add a setting to an environment variable; False if it is there already."""
    present = os.environ.get(variable, "")
    if name in present:
        return False
    os.environ[variable] = separator.join(filter(None, [present, f"{name}={value}"]))
    return True


def correct_sums() -> None:
    """Make XLA sum correctly, or warn that it is too late for that."""
    # An XLA that does not know a flag ends the process, so only those that need it get it.
    if version.__version__ not in WRONG_SUMS:
        return
    if not _has_started():
        add(*NO_FUSED_SUMS)
    elif NO_FUSED_SUMS[1] not in os.environ.get("XLA_FLAGS", ""):
        warnings.warn(
            f"jaxlib {version.__version__} computes some sums wrongly on CPUs, and jax was used "
            "before istanas_jax could prevent it: import istanas_jax first, or set "
            f"XLA_FLAGS={NO_FUSED_SUMS[1]}=",
            stacklevel=3,
        )


def _has_started() -> bool:
    """Whether XLA has read its flags."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()
