import re
from dataclasses import replace

import pytest

from istanas_jax.space import connections
from istanas_jax.space.connections import Connection
from istanas_jax.space.spaces import DARTS


def test_the_operations_are_those_of_the_paper():
    assert DARTS.operations == (
        "max_pool_3x3",
        "avg_pool_3x3",
        "skip_connect",
        "sep_conv_3x3",
        "sep_conv_5x5",
        "dil_conv_3x3",
        "dil_conv_5x5",
    )
    assert DARTS.num_ops == 7


def test_flat_indices_agree_with_an_enumeration():
    """Candidates counted one by one: for every predecessor, every operation."""
    for node in range(6):
        candidates = [
            (predecessor, op)
            for predecessor in range(node + 2)
            for op in range(len(DARTS.operations))
        ]
        assert DARTS.num_candidates(node) == len(candidates)
        assert replace(DARTS, nodes=node + 1).max_candidates == len(candidates)
        for flat, (predecessor, op) in enumerate(candidates):
            assert DARTS.flat_index(predecessor, op) == flat
            assert DARTS.split_index(flat) == (predecessor, op)
            assert DARTS.connection(flat) == Connection(DARTS.operations[op], predecessor)
            assert DARTS.flat(Connection(DARTS.operations[op], predecessor)) == flat


def test_candidates_of_the_four_nodes():
    assert [DARTS.num_candidates(node) for node in range(4)] == [14, 21, 28, 35]


def test_edges_agree_with_an_enumeration():
    for num_nodes in range(1, 7):
        edges = [(node, p) for node in range(num_nodes) for p in range(node + 2)]
        assert connections.num_edges(num_nodes) == len(edges)
        assert [connections.edge_index(node, p) for node, p in edges] == list(range(len(edges)))
    assert connections.num_edges(4) == 14


def test_arithmetic_takes_arrays():
    np = pytest.importorskip("numpy")
    flat = np.arange(35).reshape(5, 7)
    predecessor, op = DARTS.split_index(flat)
    np.testing.assert_array_equal(predecessor[:, 0], range(5))
    np.testing.assert_array_equal(op[0], range(7))
    np.testing.assert_array_equal(DARTS.flat_index(predecessor, op), flat)
    nodes = np.array([0, 0, 1, 3])
    np.testing.assert_array_equal(
        connections.edge_index(nodes, np.array([0, 1, 2, 4])), [0, 1, 4, 13]
    )
    np.testing.assert_array_equal(DARTS.num_candidates(nodes), [14, 14, 21, 35])
    assert type(DARTS.connection(flat[2, 3]).predecessor) is int


@pytest.mark.parametrize(
    ("num_cells", "reductions", "auxiliary"),
    [
        (20, {6, 13}, 13),
        (14, {4, 9}, 9),
        (8, {2, 5}, 5),
        (3, {1, 2}, 2),
        (2, {0, 1}, 1),
        (1, {0}, 0),
    ],
)
def test_reduction_and_auxiliary_positions(num_cells, reductions, auxiliary):
    assert connections.reduction_cells(num_cells) == reductions
    assert connections.auxiliary_cell(num_cells) == auxiliary


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: DARTS.connection(-1), "flat index -1 is negative"),
        (lambda: connections.reduction_cells(0), "the number of cells is 0, expected at least 1"),
        (lambda: connections.auxiliary_cell(-1), "the number of cells is -1, expected at least 1"),
        (lambda: connections.num_edges(0), "the number of nodes is 0, expected at least 1"),
        (
            lambda: DARTS.flat(Connection("sep_conv_7x7", 0)),
            "operation 'sep_conv_7x7' is not among the 7 candidates: "
            + ", ".join(DARTS.operations),
        ),
    ],
)
def test_impossible_arguments_are_refused_in_words(call, sentence):
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        call()
