"""Run where CONTRIBUTING.md's operation conv_3x3 is added: everything follows from its record."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from istanas_jax.deploy.folding import apply_folded, fold_batch_norms
from istanas_jax.deploy.release_state import load_release_state, to_release_state
from istanas_jax.judge import regression
from istanas_jax.look.colours import colour_of
from istanas_jax.look.drawing import cell_svg
from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import EPSILON, Mode, init_stats
from istanas_jax.networks.counting import count, operation_work
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.target_net import TargetNet, init_target
from istanas_jax.space.genotype import Genotype, load
from istanas_jax.space.spaces import DARTS

NAME, CHANNELS, SIZE = "conv_3x3", 2, 7

SPACE = replace(DARTS, name="own", operations=(*DARTS.operations, NAME), nodes=2)

for stride in (1, 2):
    shapes = operations.weight_shapes(NAME, CHANNELS, stride, operations.RETRAIN)
    weights = {
        name: operations.init_weight(jax.random.key(n), name, shape)
        for n, (name, shape) in enumerate(shapes.items())
    }
    x = jax.random.normal(jax.random.key(0), (2, SIZE, SIZE, CHANNELS))
    y, _ = operations.apply_op(
        NAME, x, weights, init_stats(1, CHANNELS), stride=stride, mode=Mode(train=False)
    )
    expected = lax.conv_general_dilated(
        jax.nn.relu(x),
        weights["conv0"],
        (stride, stride),
        [(1, 1), (1, 1)],
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ) / math.sqrt(1 + EPSILON)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    work = operation_work(NAME, CHANNELS, SIZE, stride, operations.RETRAIN)
    kernel, pixels = 9 * CHANNELS**2, math.prod(y.shape[1:3])
    assert work.parameters == kernel + 2 * CHANNELS
    assert work.multiply_adds == kernel * pixels
    # A ReLU per element of the input, a scale and a shift per element of the output.
    assert work.elementwise == CHANNELS * SIZE**2 + 2 * CHANNELS * pixels

cell = [[(NAME, 0), ("skip_connect", 1)], [(NAME, 2), ("max_pool_3x3", 0)]]
genotype = Genotype(cell, (2, 3), cell, (2, 3))
assert Genotype.from_text(genotype.to_text()) == genotype
assert Genotype.from_supports(*genotype.supports(SPACE), SPACE) == genotype
drawing = cell_svg(genotype, "reduction")
assert f"{NAME} /2" in drawing and colour_of(NAME) in drawing

net = TargetNet(genotype, classes=3, cells=2, channels=CHANNELS)
variables = init_target(net, jax.random.key(0), 8)
params = jax.tree.leaves(variables["params"])
assert count(net, 8).parameters == sum(leaf.size for leaf in params)
images = jax.random.normal(jax.random.key(1), (1, 8, 8, 3))
logits = jax.jit(lambda v, x: net.apply(v, x, train=False)[0])(variables, images)
folded = jax.jit(lambda v, x: apply_folded(net, v, x))(fold_batch_norms(variables, net), images)
np.testing.assert_allclose(folded, logits, atol=1e-5)
again = load_release_state(to_release_state(variables, net), net)
jax.tree.map(np.testing.assert_array_equal, again, variables)

search = SuperNet(classes=3, cells=1, channels=CHANNELS, space=SPACE)
support = jnp.array(genotype.supports(SPACE))
shapes = jax.eval_shape(
    lambda: search.init(
        jax.random.key(0), images, support, jnp.ones(support.shape), train=False, dense=True
    )
)
kernel = shapes["params"]["cell_00"]["edges_from_inputs"][NAME]["conv0"]
assert kernel.shape == (4, 3, 3, 2 * CHANNELS, 2 * CHANNELS)

given = load("DARTS_V2")
connection = [(NAME, 0), ("skip_connect", 1)]
own = replace(given, normal=[connection, *given.normal[1:]])
assert "no trained cell had it" in regression.why_not(own)
