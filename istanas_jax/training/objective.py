"""What a phase minimises: how it sees its images, its loss, and the gradient over all devices."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, UInt8
from ml_collections import ConfigDict

from istanas_jax.data.augmentation import augment, draw
from istanas_jax.data.dataset import Dataset
from istanas_jax.devices.parallel import AXIS, own_part


@dataclass(frozen=True)
class Recipe:
    """How a phase sees its images and what it minimises."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    pad: int
    flip: bool
    cutout: int
    label_smoothing: float
    auxiliary_weight: float
    drop_path: float  # reached linearly at `total_steps`
    sync_norms: bool  # batch statistics over all devices, or of each alone
    microbatches: int  # pieces in which a device sees its part of a batch
    total_steps: int
    color_jitter: tuple[float, ...] = ()  # brightness, contrast, saturation, hue

    @property
    def norm_axis(self) -> str | None:
        return AXIS if self.sync_norms else None

    def draw_augmentation(
        self, key: jax.Array, images: UInt8[Array, "B H W C"]
    ) -> Float[Array, "B draws"]:
        """Draw random numbers for `augment`; an image gets the same for any number of devices."""
        return own_part(draw(key, len(images) * lax.axis_size(AXIS), jitter=any(self.color_jitter)))

    def augment(
        self, draws: Float[Array, "B draws"], images: UInt8[Array, "B H W C"]
    ) -> Float[Array, "B H W C"]:
        """Crop, flip, cut out and jitter the images by these draws, then normalise them."""
        return augment(
            draws,
            images,
            mean=self.mean,
            std=self.std,
            pad=self.pad,
            flip=self.flip,
            cutout=self.cutout,
            color_jitter=self.color_jitter,
        )

    def mean_gradient(self, loss_of, wrt, stats, batch: tuple[Array, ...]):
        """The gradient of a loss, averaged over all devices.

        loss_of: `(wrt, stats, *batch) -> loss, (logits, stats)`.

        Each micro-batch is treated as if it were on a device of its own: it has its own batch
        statistics unless these are synchronised, and the running statistics are averaged.
        """
        gradient = jax.value_and_grad(loss_of, has_aux=True)
        n = self.microbatches
        if n == 1:
            (loss, (logits, stats)), grads = gradient(wrt, stats, *batch)
        else:
            parts = jax.tree.map(lambda x: x.reshape(n, -1, *x.shape[1:]), batch)

            def add(sums, part):
                (loss, (logits, moved)), grads = gradient(wrt, stats, *part)
                return jax.tree.map(jnp.add, sums, (loss, moved, grads)), logits

            zero = jax.tree.map(jnp.zeros_like, (jnp.float32(0), stats, wrt))
            sums, logits = lax.scan(add, zero, parts)
            loss, stats, grads = jax.tree.map(lambda x: x / n, sums)
            logits = logits.reshape(-1, logits.shape[-1])
        loss, stats, grads = lax.pmean((loss, stats, grads), AXIS)
        return loss, logits, stats, grads

    def loss(self, outputs, labels: Int[Array, " B"]) -> Float[Array, ""]:
        """Cross-entropy, with that of the auxiliary head if there is one."""
        logits, auxiliary = outputs
        value = self._cross_entropy(logits, labels)
        if auxiliary is not None:
            value += self.auxiliary_weight * self._cross_entropy(auxiliary, labels)
        return value

    def _cross_entropy(self, logits, labels):
        logits = logits.astype(jnp.float32)
        targets = jax.nn.one_hot(labels, logits.shape[-1])
        targets = optax.smooth_labels(targets, self.label_smoothing)
        return optax.softmax_cross_entropy(logits, targets).mean()


def make_recipe(config: ConfigDict, phase: ConfigDict, dataset: Dataset, steps: int) -> Recipe:
    """Make the recipe of `phase`, a part of the config, for so many steps."""
    return Recipe(
        mean=tuple(dataset.mean.tolist()),
        std=tuple(dataset.std.tolist()),
        pad=config.data.pad,
        flip=config.data.flip,
        cutout=phase.cutout,
        label_smoothing=phase.label_smoothing,
        auxiliary_weight=phase.auxiliary_weight,
        drop_path=phase.drop_path if "drop_path" in phase else 0.0,  # a search drops none
        sync_norms=phase.sync_norms,
        microbatches=phase.microbatches,
        total_steps=steps,
        color_jitter=tuple(config.data.get("color_jitter", ())),
    )
