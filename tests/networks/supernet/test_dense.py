"""The dense cell against one that is computed edge by edge."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_methods import EDGES, NODES, random_cell

from istanas_jax.methods.tables import SKIP
from istanas_jax.networks import operations
from istanas_jax.networks.batch_norm import Mode
from istanas_jax.networks.supernet.cell_variables import CellSpec
from istanas_jax.networks.supernet.dense import Mixture, run_cell_mixed
from istanas_jax.space.connections import edge_index
from istanas_jax.space.spaces import DARTS


def naive_cell(cell, x, mixture, spec, mode):
    """Edge by edge as PC-DARTS has it, the shuffle on every edge."""
    k, part = spec.partial, spec.op_channels
    pre, _ = operations.preprocess(x, cell.pre0, cell.pre_stats[0], mode=mode)
    states = [pre, pre]
    for node in range(NODES):
        total = 0
        for i in range(node + 2):
            group = int(spec.reduction and i >= 2)
            stride, place = spec.strides[group], spec.groups[group].index((node, i))
            edge, h = edge_index(node, i), states[i]
            mixed = 0
            for n in spec.candidates[edge] if spec.candidates else range(DARTS.num_ops):
                op = DARTS.operations[n]
                weights = {m: w[place] for m, w in cell.groups[group].get(op, {}).items()}
                norms = operations.num_norms(op, stride, spec.regime)
                stats = cell.stats[edge, n, :norms]
                y, _ = operations.apply_op(
                    op, h[..., :part], weights, stats, stride=stride, mode=mode
                )
                mixed = mixed + float(mixture.table[edge, n]) * np.asarray(y)
            if k > 1:
                rest = np.asarray(h[..., part:])
                if stride == 2:
                    rest = np.max([rest[:, a::2, b::2] for a in range(2) for b in range(2)], 0)
                mixed = np.concatenate([mixed, float(mixture.edges[edge]) * rest], -1)
                order = [g * part + c for c in range(part) for g in range(k)]
                mixed = mixed[..., order]
            total = total + mixed
        states.append(jnp.asarray(total))
    return np.concatenate(states[2:], -1)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["partial", "candidates"])
def test_dense_cell_against_a_naive_one(option):
    """A reduction cell: both strides, and for PC-DARTS what passes by."""
    rng = np.random.default_rng(0)
    some = tuple(tuple(sorted(rng.choice(DARTS.num_ops, 2, replace=False))) for _ in range(EDGES))
    some = tuple(tuple(map(int, ops_)) for ops_ in some)
    options = {"partial": 2} if option == "partial" else {"candidates": some}
    spec = CellSpec(4, True, replace(DARTS, nodes=NODES), operations.REGIMES["search"], **options)
    cell, mode = random_cell(spec, rng), Mode(True)
    x = jnp.asarray(rng.normal(size=(2, 4, 4, 3)), jnp.float32)
    mixture = Mixture(
        jnp.asarray(rng.normal(size=(EDGES, DARTS.num_ops)), jnp.float32),
        jnp.asarray(rng.normal(size=EDGES), jnp.float32) if option == "partial" else None,
    )
    run = jax.jit(partial(run_cell_mixed, spec=spec, mode=mode))
    out, (_, stats) = run((cell, 0), x, x, mixture)
    expected = naive_cell(cell, x, mixture, spec, mode)
    np.testing.assert_allclose(out, expected, atol=2e-5 * np.abs(expected).max())
    moved = np.any(np.asarray(stats != cell.stats), (2, 3, 4))
    expected = np.zeros((EDGES, DARTS.num_ops), bool)
    for edge, candidates in enumerate(spec.candidates or [range(DARTS.num_ops)] * EDGES):
        expected[edge, list(candidates)] = True
    _, on_nodes = spec.groups  # an identity has no statistics
    expected[[edge_index(*edge) for edge in on_nodes], DARTS.operations.index(SKIP)] = False
    np.testing.assert_array_equal(moved, expected)
