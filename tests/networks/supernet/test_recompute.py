"""Dense nets that run their operations again in the backward pass: equal gradients, less memory."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_methods import EDGES, NODES, make, random_cell

from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode
from istanas_jax.networks.supernet.cell_variables import CellSpec
from istanas_jax.networks.supernet.dense import Mixture, run_cell_mixed
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.space.spaces import DARTS

pytestmark = pytest.mark.slow

DENSE = ("darts", "darts_second_order", "pc_darts", "snas", "nasp", "pdarts", "gdas", "drnas")


def compiled_gradient(recompute: bool, cell, x, mixture, **options):
    """The gradient of a cell in all its inputs, and the cell's new statistics."""
    regime = operations.REGIMES["search"]
    spec = CellSpec(4, False, replace(DARTS, nodes=NODES), regime, recompute=recompute, **options)

    def loss(cell, x, table):
        parts = mixture._replace(table=table)
        out, moved = run_cell_mixed((cell, 0), x, x, parts, spec=spec, mode=Mode(True))
        return jnp.sum(jnp.sin(out)), moved

    gradient = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))
    return gradient.lower(cell, x, mixture.table).compile()


def test_equal_gradients_in_less_memory():
    """A cell with channels that pass by (PC-DARTS) and skip-connections that are dropped out
    (P-DARTS), the second time in the same places."""
    rng = np.random.default_rng(0)
    options = {"partial": 2}
    cell = random_cell(
        CellSpec(4, False, replace(DARTS, nodes=NODES), operations.REGIMES["search"], **options),
        rng,
    )
    x = jnp.asarray(rng.normal(size=(16, 16, 16, 3)), jnp.float32)
    table, edges = rng.normal(size=(EDGES, DARTS.num_ops)), rng.normal(size=EDGES)
    drop = (jax.random.key(0), jnp.float32(0.4))
    mixture = Mixture(jnp.asarray(table, jnp.float32), jnp.asarray(edges, jnp.float32), drop)
    kept, again = (
        compiled_gradient(recompute, cell, x, mixture, **options) for recompute in (False, True)
    )
    expected, found = (program(cell, x, mixture.table) for program in (kept, again))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        # The same sums, but fused otherwise and so perhaps in another order: rounding of float32.
        np.testing.assert_allclose(one, other, atol=2e-5 * max(np.abs(other).max(), 1e-3))
    memory = [program.memory_analysis().temp_size_in_bytes for program in (kept, again)]
    assert memory[1] < 0.6 * memory[0]


@pytest.mark.parametrize("method", DENSE)
def test_every_dense_method_has_the_option(method):
    net = SuperNet(classes=10, cells=3, channels=16)
    assert not make(method).adapt_net(net).recompute
    chosen = make(method, f"search.{method}.recompute=True").adapt_net(net)
    assert all(chosen.spec(plan).recompute for plan in chosen.plans())
