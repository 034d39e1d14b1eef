"""What a step of search asks of a search method: pure functions, traced into compiled programs.

`methods.contract.Method` adds what a method does on the host, between the steps.
"""

from abc import ABC, abstractmethod
from typing import Any

from jaxtyping import Array, Int

from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.training.states import TrainState


class StepRules(ABC):
    """How architecture variables `arch`, a tree of arrays, become a network, and how they move."""

    weights_first = False  # W is updated before the architecture
    batch_statistics = False  # W suits many networks: evaluation normalises by the batch

    @abstractmethod
    def trainable(self, arch) -> Any:
        """The part of the variables that Adam updates."""

    def with_trainable(self, arch, trainable) -> Any:
        """The variables with this trainable part: the point at which gradients are taken."""
        return arch

    def after_update(self, arch, trainable) -> Any:
        """The variables once Adam has moved their trainable part to this."""
        return self.with_trainable(arch, trainable)

    def moves_at(self, step: Int[Array, ""]) -> Array | None:
        """Whether the architecture is updated at this step; None: at every step."""
        return None

    def sample(self, arch, weights: TrainState) -> Any:
        """The variables as this step uses them, if it draws something at random.

        An update is applied to the variables as they were before the draw.
        """
        return arch

    @abstractmethod
    def network_inputs(self, arch, weights: TrainState | None = None) -> dict[str, Any]:
        """Arguments of the super-net beside the images: a support with coefficients, or a table.

        weights: given in training, for its `step` and for a `key` to draw from.
        """

    def network_inputs_for_w(self, arch, weights: TrainState | None = None) -> dict[str, Any]:
        """The inputs for updates of W and for evaluation, if these run the network another way."""
        return self.network_inputs(arch, weights)

    def keep_inactive_weights(self, net: SuperNet, arch, before, after) -> Any:
        """Choose, for each weight, its value before or after an update; inactive ones stay."""
        return after
