"""`python -m istanas_jax` and `istanas`."""

import os
import sys

# Settings for XLA's CPU backend, each unless the user has chosen otherwise.
# XLA allocates the memory of a program anew at every step: in pages of 4 KiB its first touch and
# the look-ups cost a search step about a sixth of its time.
HUGE_PAGES = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb", "1", ":")
# Vectors of 512 bits where the processor has them: a twentieth.
WIDE_VECTORS = ("XLA_FLAGS", "--xla_cpu_prefer_vector_width", "512", " ")


def main() -> int:
    """Run the command line; on Linux once more, since glibc reads its settings at the start."""
    missing = [setting for setting in (HUGE_PAGES, WIDE_VECTORS) if _add(*setting)]
    if HUGE_PAGES in missing and sys.platform == "linux":
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    from istanas_jax.cli import main

    return main()


def _add(variable: str, name: str, value: str, separator: str) -> bool:
    """Add a setting to an environment variable that does not have it yet."""
    present = os.environ.get(variable, "")
    if name in present:
        return False
    os.environ[variable] = separator.join(filter(None, [present, f"{name}={value}"]))
    return True


if __name__ == "__main__":
    sys.exit(main())
