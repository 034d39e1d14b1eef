"""The command line with a recovery that comes to another support on device 1: run by a test."""

import sys

from jax import lax

from istanas_jax.__main__ import main
from istanas_jax.devices.parallel import AXIS
from istanas_jax.methods import ista_recovery

honest = ista_recovery.recover


def disturbed(arch, coding):
    return honest(arch.replace(b=arch.b + (lax.axis_index(AXIS) == 1)), coding)


if __name__ == "__main__":
    ista_recovery.recover = disturbed
    sys.exit(main())
