"""Parts of a step against answers written by hand: ranks of labels, the norm that is clipped."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from istanas_jax.devices.parallel import AXIS
from istanas_jax.methods.ista import Ista
from istanas_jax.networks.supernet.net import SuperNet
from istanas_jax.networks.variables import init_variables
from istanas_jax.space.spaces import DARTS
from istanas_jax.sparse_coding.architecture import ArchState
from istanas_jax.training.search_steps import _descend
from istanas_jax.training.states import TrainState
from istanas_jax.training.steps import batch_totals, label_rank, masked_totals

NAN, INF = np.nan, np.inf
ROWS = [  # logits, label, whether it is a hit, whether it is one of the first five
    ([1, 2, 3, 4, 5, 6, 7], 6, True, True),
    ([1, 2, 3, 4, 5, 6, 7], 2, False, True),
    ([1, 2, 3, 4, 5, 6, 7], 1, False, False),
    ([0, 0, 0, 0, 0, 0, 0], 0, True, True),  # all alike: the first five, and no other
    ([0, 0, 0, 0, 0, 0, 0], 4, False, True),
    ([0, 0, 0, 0, 0, 0, 0], 5, False, False),
    ([9, 5, 5, 5, 5, 5, 5], 4, False, True),
    ([9, 5, 5, 5, 5, 5, 5], 6, False, False),
    ([NAN] * 7, 0, False, False),
    ([NAN, 2, 3, 4, 5, 6, 7], 6, False, False),  # another class is unknown
    ([1, 2, 3, 4, 5, 6, NAN], 6, False, False),  # its own is
    ([INF, 2, 3, 4, 5, 6, 7], 0, True, True),
    ([INF, 2, 3, 4, 5, 6, 7], 6, False, True),
    ([-INF] * 7, 5, False, False),
]


def test_hits_of_ties_and_of_nan():
    logits = jnp.array([row[0] for row in ROWS], jnp.float32)
    labels = jnp.array([row[1] for row in ROWS])
    rank = np.asarray(label_rank(logits, labels))
    assert (rank == 0).tolist() == [row[2] for row in ROWS]
    assert (rank < 5).tolist() == [row[3] for row in ROWS]

    def totals(logits, labels):
        ones = jnp.ones(labels.shape)
        return masked_totals(logits, labels, ones), batch_totals(jnp.float32(0), logits, labels)

    judged, trained = jax.vmap(totals, axis_name=AXIS)(logits[None], labels[None])
    assert judged.correct[0] == trained.correct[0] == sum(row[2] for row in ROWS)
    assert judged.top5[0] == sum(row[3] for row in ROWS)


def test_nan_is_no_hit_of_few_classes():
    """With at most five classes every label is among the first five, unless there are none."""
    logits = jnp.array([[1, 2], [NAN, NAN]], jnp.float32)
    assert (label_rank(logits, jnp.array([0, 0])) < 5).tolist() == [True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    "frozen", [[[False, False], [False, False]], [[True, False], [True, True]]]
)
def test_what_stands_still_is_no_part_of_the_clipped_norm(frozen):
    """In Algorithm 2 scales and shifts of a node's operations are trained once it is frozen."""
    net = SuperNet(
        classes=3, cells=1, channels=4, space=replace(DARTS, nodes=2), regime="one_stage"
    )
    # Node 0: sep_conv_3x3 of input 0, dil_conv_3x3 of input 1; node 1: operations 4 and 6 of 0.
    support = jnp.array([[[3, 7 + 5], [4, 6]]] * 2, jnp.int32)
    n = replace(DARTS, nodes=2).max_candidates
    arch = ArchState(
        b=jnp.ones((2, 2, 3)),
        A=jnp.ones((2, 2, 3, n)),
        z=jnp.zeros((2, 2, n)),
        support=support,
        frozen=jnp.array(frozen),
    )
    x = jnp.zeros((1, 8, 8, 3))
    given = {"support": support, "coefficients": jnp.ones(support.shape), "train": False}
    variables = jax.eval_shape(lambda: init_variables(net, jax.random.key(0), x, **given))
    variables = jax.tree.map(lambda v: jnp.ones(v.shape, v.dtype), variables)
    sgd = optax.chain(optax.clip_by_global_norm(1e-2), optax.sgd(1.0, momentum=0.9))
    weights = TrainState.create(variables, sgd, 0)
    rng = np.random.default_rng(0)
    dw = {
        path: rng.normal(size=value.shape).astype(np.float32)
        for path, value in flatten_dict(variables["params"]).items()
    }

    # By hand. The only cell is a reduction. Edges from inputs: two of each node, in that order.
    active = {("sep_conv_3x3", 0): 0, ("dil_conv_3x3", 1): 0, ("sep_conv_5x5", 2): 1}
    active |= {("dil_conv_5x5", 2): 1}
    squares, expected = 0.0, {}
    for path, gradient in dw.items():
        expected[path] = gradient.copy()
        if path[0].startswith("cell") and path[1].startswith("edges"):
            for edge in range(len(gradient)):
                node = active.get((path[2], edge)) if path[1] == "edges_from_inputs" else None
                scale = path[-1].startswith(("scale", "shift"))
                if node is None or (scale and not frozen[1][node]):
                    expected[path][edge] = 0
        squares += float(np.sum(expected[path].astype(np.float64) ** 2))
    factor = 1e-2 / np.sqrt(squares)

    method = Ista.__new__(Ista)  # of which the step asks only what is kept
    params, state = _descend(net, weights, arch, unflatten_dict(dw), sgd, method)
    momentum = flatten_dict(optax.tree_utils.tree_get(state, "trace"))
    for path, value in flatten_dict(params).items():
        # float32 sums of squares; relative to the largest entry, for 1 - change is rounded
        np.testing.assert_allclose(momentum[path], factor * expected[path], rtol=1e-4, atol=1e-9)
        np.testing.assert_allclose(value, 1 - factor * expected[path], atol=1e-6)
