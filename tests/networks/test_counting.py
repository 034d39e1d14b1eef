"""Sizes and costs of networks: the published numbers, and a count of the traced programs."""

import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from target_nets import every_operation, target

from istanas_jax.networks import counting
from istanas_jax.networks.counting import SIZES, count, count_supernet
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.target_net import TargetNet, cell_name, init_target
from istanas_jax.space import genotype, published

NETS, NAMES = tuple(SIZES), tuple(genotype.published())
TWO_STAGE = SuperNet(classes=10, cells=8, channels=16)
ONE_STAGE = SuperNet(classes=10, cells=20, channels=36, regime="one_stage", auxiliary=True)


def sizes_of_variables(init) -> Counter:
    """Parameters of each part, from what the network itself makes."""
    params = jax.eval_shape(init, jax.random.key(0))["params"]
    return Counter({k: sum(leaf.size for leaf in jax.tree.leaves(v)) for k, v in params.items()})


def check(counts: counting.Counts, made: Counter) -> None:
    assert counts.parameters == made.total() - made["auxiliary"]
    if made["auxiliary"]:
        assert counts.parameters_with_auxiliary == made.total()
    cells = [made[cell_name(index)] for index in range(len(counts.cells))]
    assert [cell.parameters for cell in counts.cells] == cells


def init_super(net: SuperNet, image_size: int):
    x = jnp.zeros((1, image_size, image_size, net.image_channels))
    support = jnp.zeros((2, net.space.nodes, net.space.most), int)
    return lambda key: net.init(key, x, support, jnp.ones(support.shape), train=False, dense=True)


# The published numbers


@pytest.mark.parametrize(
    ("net", "parameters", "with_auxiliary", "multiply_adds"),
    [
        (target("ISTA_twostage"), 3_316_726, 3_793_152, 515_226_240),
        (target("ISTA_onestage", regime="one_stage"), 3_371_806, 3_848_232, 532_257_408),
        (target("ISTA_onestage"), 3_363_598, 3_840_024, 532_257_408),
        (target("ISTA_ImageNet", "imagenet"), 5_651_392, 6_912_168, 621_084_480),
    ],
)
def test_target_nets_have_the_published_sizes(net, parameters, with_auxiliary, multiply_adds):
    counts = count(net)
    assert counts.parameters == parameters
    assert counts.parameters_with_auxiliary == with_auxiliary
    assert counts.multiply_adds == multiply_adds


@pytest.mark.parametrize(
    ("net", "cells", "parameters", "dense", "sparse"),
    [
        (TWO_STAGE, "ISTA_twostage", 1_930_618, 300_255_744, 48_192_000),
        (ONE_STAGE, "ISTA_onestage", 20_374_678, 3_070_260_864, 532_257_408),
    ],
)
def test_super_nets_have_the_published_sizes(net, cells, parameters, dense, sparse):
    everything = count_supernet(net)
    assert everything.parameters == parameters
    assert everything.multiply_adds == dense
    if net.auxiliary:
        assert everything.parameters_with_auxiliary == 20_851_104
    support = genotype.load(cells).supports()
    active = count_supernet(net, np.array(support))
    assert active.multiply_adds == sparse
    assert active == count_supernet(net, support)
    assert active == count(target(cells, cells=net.cells, channels=net.channels, regime=net.regime))


@pytest.mark.parametrize(
    ("name", "flops", "digits"),
    [
        ("ISTA_ImageNet", 637.963432, 6),
        ("DARTS_V2", 544.589032, 6),
        ("PDARTS", 557.4, 1),
        ("PC_DARTS_image", 597.2, 1),
    ],
)
def test_flops_in_millions_are_the_published_ones(name, flops, digits):
    assert round(count(target(name, "imagenet")).flops / 1e6, digits) == flops


def test_every_published_genotype_has_documented_sizes():
    assert set(published.PARAMETERS) == set(NAMES)


@pytest.mark.parametrize("stem", NETS)
@pytest.mark.parametrize("name", NAMES)
def test_published_genotypes_have_their_documented_sizes(name, stem):
    documented = genotype.published_parameters(name)[NETS.index(stem)]
    assert count(target(name, stem)).parameters == documented


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stem", "cells"),
    [(name, NETS[n % 2], 5) for n, name in enumerate(NAMES)]  # 5 cells have every kind of cell
    + [("ISTA_onestage", "cifar", 20), ("ISTA_ImageNet", "imagenet", 14)],
)
def test_parameters_are_those_of_the_variables(name, stem, cells):
    regime = "one_stage" if name == "ISTA_onestage" else "retrain"
    net = target(name, stem, cells=cells, regime=regime, auxiliary=True)
    check(count(net), sizes_of_variables(lambda key: init_target(net, key, 224)))


@pytest.mark.parametrize("net", [TWO_STAGE, ONE_STAGE], ids=["two-stage", "one-stage"])
def test_parameters_of_super_nets(net):
    check(count_supernet(net), sizes_of_variables(init_super(net, 32)))


# The independent count: of the traced program


def traced(jaxpr, times: int = 1) -> Counter:
    """What a program does, the form for accelerators where there are several."""
    work = Counter()
    for eqn in jaxpr.eqns:
        shapes = [v.aval.shape for v in eqn.invars]
        made = math.prod(eqn.outvars[0].aval.shape) if eqn.outvars else 0
        name = eqn.primitive.name
        if name == "cond":
            assert eqn.params["branches_platforms"][-1] is None
            work += traced(eqn.params["branches"][-1].jaxpr, times)
            continue
        if name == "conv_general_dilated":
            out = eqn.params["dimension_numbers"].rhs_spec[0]
            work["multiply_adds"] += times * made * math.prod(shapes[1]) // shapes[1][out]
        elif name == "dot_general":
            (contracted, _), _ = eqn.params["dimension_numbers"]
            work["multiply_adds"] += times * made * math.prod(shapes[0][i] for i in contracted)
        elif name == "max":
            work["relu"] += times * made
        elif name.startswith("reduce_"):  # windows, and the mean over all pixels
            work["pool"] += times * math.prod(shapes[0])
        elif name == "mul" and len(shapes[0]) == 4 and shapes[1][:3] == (1, 1, 1):
            work["norm"] += times * made
        repeats = eqn.params["length"] if name == "scan" else 1
        for inner in jaxprs_in_params(eqn.params):
            work += traced(inner, times * repeats)
    return work


def traced_target(net: TargetNet, image_size: int) -> Counter:
    variables = jax.eval_shape(lambda key: init_target(net, key, image_size), jax.random.key(0))
    x = jnp.zeros((1, image_size, image_size, net.image_channels))
    program = jax.make_jaxpr(lambda variables: net.apply(variables, x, train=False)[0])(variables)
    return traced(program.jaxpr)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shift", "stem", "size", "regime"),  # odd sizes are halved upwards
    [
        (0, "cifar", 45, "one_stage"),
        (2, "imagenet", 46, "retrain"),
        (4, "imagenet", 45, "one_stage"),
        (6, "cifar", 58, "retrain"),
        (8, "imagenet", 33, "retrain"),
    ],
)
def test_counts_are_those_of_the_traced_program(shift, stem, size, regime):
    net = target(every_operation(shift), stem, channels=8, cells=5, regime=regime, image_channels=2)
    counts, work = count(net, size), traced_target(net, size)
    assert counts.multiply_adds == work["multiply_adds"]
    others = 2 * work["norm"] + work["relu"] + work["pool"] + net.classes
    assert counts.flops == work["multiply_adds"] + others


@pytest.mark.slow
def test_a_full_size_net_against_the_traced_program():
    net = target("ISTA_ImageNet", "imagenet")
    assert traced_target(net, 224)["multiply_adds"] == count(net).multiply_adds


@pytest.mark.slow
def test_the_dense_super_net_against_the_traced_program():
    variables = jax.eval_shape(init_super(TWO_STAGE, 32), jax.random.key(0))
    inputs = (jnp.zeros((1, 32, 32, 3)), jnp.zeros((2, 4, 2), int), jnp.ones((2, 4, 2)))

    def run(variables):
        return TWO_STAGE.apply(variables, *inputs, train=False, dense=True)[0]

    work = traced(jax.make_jaxpr(run)(variables).jaxpr)
    assert work["multiply_adds"] == count_supernet(TWO_STAGE).multiply_adds


def test_a_support_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"\(2, 3, 2\), expected \(2, 4, 2\)"):
        count_supernet(TWO_STAGE, np.zeros((2, 3, 2), int))


@pytest.mark.parametrize(("stem", "smallest"), [("cifar", 29), ("imagenet", 193)])
def test_small_images_leave_no_room_for_the_auxiliary_head(stem, smallest):
    net = target("ISTA_twostage", stem)
    assert count(net, smallest).parameters_with_auxiliary
    assert count(net, smallest - 1).parameters_with_auxiliary is None
