"""The networks of a config: the super-net that a search runs in, and the target net it is for."""

from ml_collections import ConfigDict

from istanas_jax.data.dataset import Dataset
from istanas_jax.methods.contract import Method
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.space.genotype import Genotype, random_genotype
from istanas_jax.space.spaces import read_space


def target_net(
    config: ConfigDict, phase: ConfigDict, dataset: Dataset, genotype: Genotype | None = None
) -> TargetNet:
    """The network that a phase trains.

    Args:
      phase: the part of the config that says how large it is.
      genotype: its cells; random ones, to measure it by, if they are still to be found.
    """
    # The phases of a one-stage schedule have no such key: theirs are always one-stage norms.
    one_stage = "one_stage_norms" not in phase or phase.one_stage_norms
    return TargetNet(
        genotype=genotype or random_genotype(0, read_space(config.space)),
        classes=dataset.classes,
        cells=phase.cells,
        channels=phase.channels,
        stem=phase.stem,
        regime="one_stage" if one_stage else "retrain",
        auxiliary=phase.auxiliary_weight > 0,
        image_channels=dataset.image_channels,
        dtype=phase.dtype,
    )


def super_net(config: ConfigDict, dataset: Dataset, method: Method, regime: str) -> SuperNet:
    """The network that `config.search` searches in, as the method wants it."""
    phase = config.search
    net = SuperNet(
        classes=dataset.classes,
        cells=method.cells,
        channels=phase.channels,
        space=method.space,
        stem=phase.stem,
        regime=regime,
        auxiliary=phase.auxiliary_weight > 0,
        image_channels=dataset.image_channels,
        dtype=phase.dtype,
        shrink=phase.get("shrink", 1),  # one-stage trains what it searches: it has no such key
    )
    return method.adapt_net(net)
