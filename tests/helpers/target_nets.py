"""Target nets of published genotypes, and genotypes that have every operation."""

from istanas_jax.networks.counting import SIZES
from istanas_jax.networks.target_net import TargetNet
from istanas_jax.space import genotype
from istanas_jax.space.operations import BY_NAME

# Noise is no function of an image: drawing it is not counted, and it cannot be exported.
OPERATIONS = tuple(name for name in BY_NAME if name != "noise")


def target(name: str, stem: str = "cifar", **changes) -> TargetNet:
    """The paper's network of a genotype given by name, or of the genotype itself."""
    cells = genotype.load(name) if isinstance(name, str) else name
    sizes = SIZES[stem]._asdict() | changes
    del sizes["image_size"]
    return TargetNet(cells, stem=stem, **sizes)


def every_operation(shift: int) -> genotype.Genotype:
    """Nodes that use all operations, with stride 1 and 2, over several values of `shift`."""

    def cell(shift):
        ops = [OPERATIONS[(n + shift) % len(OPERATIONS)] for n in range(10)]
        predecessors = (0, 1, 1, 2, 0, 3, 1, 4, 0, 1)
        pairs = list(zip(ops, predecessors, strict=True))
        return [pairs[n : n + 2] for n in range(0, 10, 2)]

    return genotype.Genotype(cell(shift), (2, 3, 4, 5, 6), cell(shift + 4), (3, 4, 5, 6))
