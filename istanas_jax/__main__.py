"""`python -m istanas_jax` and `istanas`."""

import os
import sys

HUGE_PAGES = "glibc.malloc.hugetlb=1"


def main() -> int:
    """Run the command line, on Linux with huge pages for large buffers.

    XLA's CPU backend allocates the memory of a program anew at every step. In pages of 4 KiB its
    first touch and the look-ups cost a search step about a sixth of its time. glibc reads the
    setting only when a process starts, so the process starts once more.
    """
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform == "linux" and "glibc.malloc.hugetlb" not in tunables:
        os.environ["GLIBC_TUNABLES"] = f"{tunables}:{HUGE_PAGES}" if tunables else HUGE_PAGES
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    from istanas_jax.cli import main

    return main()


if __name__ == "__main__":
    sys.exit(main())
