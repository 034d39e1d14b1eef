"""`python -m istanas_jax` and `istanas`."""

import os
import signal
import sys

from istanas_jax.devices.xla_settings import HUGE_PAGES, WIDE_VECTORS, add


def main() -> int:
    """Run the command line; on Linux start anew, since glibc reads its settings at startup."""
    missing = [setting for setting in (HUGE_PAGES, WIDE_VECTORS) if add(*setting)]
    if HUGE_PAGES in missing and sys.platform == "linux":
        sys.stdout.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    try:
        from istanas_jax.cli.main import main

        try:
            return main()
        finally:
            sys.stdout.flush()  # while a closed pipe can still be caught
    except BrokenPipeError:  # whoever read our output, like `head`, has ended: so do we, silently
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):  # Python flushes both once more at its exit
            os.dup2(nowhere, stream.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:  # before there was a command to stop
        print("istanas: stopped", file=sys.stderr)
        return 130
    finally:
        # Everything is saved and said: Ctrl-C once more ends the process, without a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
