"""Sizes and costs of a genotype's network, for people and for JSON."""

import itertools

import jax
import jax.numpy as jnp

from istanas_jax.networks.counting import SIZES, count
from istanas_jax.networks.target_net import TargetNet, cell_name, init_target
from istanas_jax.space.genotype import Genotype, published


def describe(genotype: Genotype, *, net: str = "cifar", one_stage: bool = False, **sizes) -> dict:
    """Sizes and costs of a genotype's network, ready for JSON.

    Parameters are read off the shapes of the network's own variables, which are exact whatever
    the network is made of. The memory needs a compilation, which takes some seconds.

    Args:
      net: "cifar" or "imagenet".
      one_stage: whether it has the batch norms of one-stage nets.
      sizes: any of NetSizes' fields; those missing or None are the paper's.
    """
    if net not in SIZES:
        raise ValueError(f"unknown net {net!r}, there are: {', '.join(SIZES)}")
    sizes = SIZES[net]._replace(**{k: v for k, v in sizes.items() if v is not None})._asdict()
    image_size = sizes.pop("image_size")
    regime = "one_stage" if one_stage else "retrain"
    target = TargetNet(genotype, **sizes, stem=net, regime=regime)
    counts = count(target, image_size)
    whole = target.clone(auxiliary=counts.parameters_with_auxiliary is not None)
    variables = jax.eval_shape(lambda key: init_target(whole, key, image_size), jax.random.key(0))
    parts = {
        name: sum(leaf.size for leaf in jax.tree.leaves(part))
        for name, part in variables["params"].items()
    }
    auxiliary = parts.pop("auxiliary", None)
    parameters = sum(parts.values())
    memory = forward_memory(target, variables, image_size)
    return {
        "name": next((name for name, known in published().items() if known == genotype), None),
        "genotype": genotype.to_text(),
        "net": net,
        **sizes,
        "image_size": image_size,
        "one_stage": one_stage,
        "parameters": parameters,
        "parameters_with_auxiliary": None if auxiliary is None else parameters + auxiliary,
        "multiply_adds": counts.multiply_adds,
        "flops": counts.flops,
        "parameters_per_cell": [parts[cell_name(index)] for index in range(target.cells)],
        "forward_memory_mb": None if memory is None else round(memory / 1e6, 3),
        "forward_memory_meaning": "temporary buffers (10^6 bytes) of the compiled evaluation of "
        f"one float32 image on {jax.default_backend()}, parameters not counted",
    }


def forward_memory(net: TargetNet, variables, image_size: int) -> int | None:
    """Bytes of temporary buffers that XLA sets aside to evaluate one image, on this backend.

    A buffer is used again once its content is dead, so this is about the largest set of
    activations alive at once. Compiles the network; None if the backend does not tell.
    """
    x = jax.ShapeDtypeStruct((1, image_size, image_size, net.image_channels), jnp.float32)
    evaluate = jax.jit(lambda variables, x: net.apply(variables, x, train=False)[0])
    analysis = evaluate.lower(variables, x).compile().memory_analysis()
    return None if analysis is None else analysis.temp_size_in_bytes


def table(results: dict) -> str:
    """Format the description as text for people."""
    with_head, memory = results["parameters_with_auxiliary"], results["forward_memory_mb"]
    rows = [
        ("parameters", f"{results['parameters']:,}"),
        ("  with auxiliary head", "too few pixels" if with_head is None else f"{with_head:,}"),
        ("multiply-adds", f"{results['multiply_adds']:,}"),
        ("FLOPs, the paper's rule", f"{results['flops']:,}"),
        ("forward memory", "unknown" if memory is None else f"{memory:,.1f} MB"),
    ]
    runs = itertools.groupby(enumerate(results["parameters_per_cell"]), key=lambda pair: pair[1])
    for parameters, run in runs:
        first, *rest = (index for index, _ in run)
        cells = f"cells {first}-{rest[-1]}, each" if rest else f"cell {first}"
        rows.append((f"parameters of {cells}", f"{parameters:,}"))
    return "\n".join(
        [
            results["name"] or results["genotype"],
            f"{results['net']} net, {results['channels']} channels, {results['cells']} cells, "
            f"{results['classes']} classes, {results['image_size']} pixels wide"
            + (", one-stage batch norms" if results["one_stage"] else ""),
            "",
            *(f"{what:<32}{value:>16}" for what, value in rows),
            "",
            f"forward memory: {results['forward_memory_meaning']}",
        ]
    )
