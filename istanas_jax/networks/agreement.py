"""Whether two forms of a network that must compute the same logits do so."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# Relative to the largest logit, by the type of the activations, as sums run in another order:
# float32 leaves 1e-6 of it; bfloat16 has 8 bits, of which a dozen cells in a row leave about four.
TOLERANCE = {"float32": 1e-4, "bfloat16": 0.1}
# Logits that are to be compared are computed with products of this precision: by default those of
# float32 round their operands, to bfloat16 on TPUs and to TF32 on GPUs.
PRECISION = "highest"


class Agreement(NamedTuple):
    """How far logits are from those expected."""

    difference: float  # the largest of all logits
    largest: float  # absolute value of the expected logits
    limit: float  # what the difference may be

    @property
    def holds(self) -> bool:
        return self.difference <= self.limit  # not if it is not a number

    def __str__(self) -> str:
        return (
            f"by {self.difference:.2g} at logits up to {self.largest:.2g}, "
            f"{'no' if self.holds else 'which is'} more than {self.limit:.2g}"
        )


def compare(
    logits: Float[np.ndarray, "B classes"], expected: Float[np.ndarray, "B classes"], dtype: str
) -> Agreement:
    """Compare logits of a network whose activations have this type with those expected."""
    logits, expected = np.asarray(logits, np.float64), np.asarray(expected, np.float64)
    largest = float(np.max(np.abs(expected)))
    difference = float(np.max(np.abs(logits - expected)))
    return Agreement(difference, largest, TOLERANCE[dtype] * largest)
