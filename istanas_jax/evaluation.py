"""Loss and accuracy of a network over a whole split."""

import jax
import numpy as np

from istanas_jax.data import Split, padded_batches
from istanas_jax.parallel import Devices
from istanas_jax.train_state import Totals


class Evaluator:
    """For any split and any state of one shape; compiled once."""

    def __init__(self, step, batch: int, devices: Devices):
        self.batch, self.devices = batch, devices
        self._step = devices.map(step, 3, donate=False)

    def compile(self, state, split: Split) -> None:
        """Now and not at the first call; of the split only the shape of its images matters."""
        batch = next(padded_batches(split, self.batch))
        self._step = self._step.lower(state, *map(self.devices.split, batch)).compile()

    def __call__(self, state, split: Split) -> dict[str, float]:
        """`loss` and `accuracy`, every image counted once."""
        parts = []
        for batch in padded_batches(split, self.batch):
            parts.append(self._step(state, *map(self.devices.split, batch)))
        return summary(jax.tree.map(lambda *xs: np.sum(xs), *jax.device_get(parts)))


def summary(totals: Totals) -> dict[str, float]:
    """The means of the sums."""
    loss, correct, images = (float(x) for x in jax.device_get(jax.tree.leaves(totals)))
    return {"loss": loss / images, "accuracy": correct / images}
