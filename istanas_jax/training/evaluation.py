"""Loss and accuracy of a network over a whole split."""

import jax
import numpy as np

from istanas_jax.data.dataset import Images, padded_indices
from istanas_jax.devices.parallel import Devices
from istanas_jax.training.states import TestTotals, Totals


class Evaluator:
    """Evaluates any images and any state of fixed shapes; compiled once."""

    def __init__(self, step, batch: int, devices: Devices, *, precision: str = "default"):
        self.batch, self.devices = batch, devices
        self.step = devices.map(step, 3, donate=False, precision=precision)

    def compile(self, state, batch: list[jax.ShapeDtypeStruct]) -> None:
        """Compile now and not at the first call; `batch` has images and labels."""
        mask = jax.ShapeDtypeStruct((self.batch,), np.float32)
        shapes = map(self.devices.split_shape, [*batch, mask])
        self.step = self.devices.compile(self.step.lower(state, *shapes))

    def __call__(self, state, images: Images) -> dict[str, float]:
        """`loss`, `accuracy` and `top5_accuracy`, every image counted once."""
        indices, masks = zip(*padded_indices(len(images), self.batch), strict=True)
        order = list(map(self.devices.part, indices))
        parts = []
        for batch, mask in zip(images.batches(order, seed=None), masks, strict=True):
            batch = (*batch, self.devices.part(mask))
            parts.append(self.step(state, *map(self.devices.split, batch)))
        return summary(jax.tree.map(lambda *xs: np.sum(xs), *jax.device_get(parts)))


def summary(totals: Totals) -> dict[str, float]:
    """Turn sums into means."""
    totals = jax.device_get(totals)
    sums = {"loss": totals.loss, "accuracy": totals.correct}
    if isinstance(totals, TestTotals):
        sums["top5_accuracy"] = totals.top5
    return {name: float(value) / float(totals.images) for name, value in sums.items()}
