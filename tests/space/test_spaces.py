"""Search spaces as data: what is published, what a config asks for, what cannot be."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from places import ROOT

from istanas_jax.config.bounds import ConfigError
from istanas_jax.config.checks import check_config
from istanas_jax.config.files import load_config
from istanas_jax.space.connections import CELL_TYPES, Connection
from istanas_jax.space.genotype import Genotype, in_order_of, random_genotype, weight_free
from istanas_jax.space.layers import Relu
from istanas_jax.space.operations import Operation, find_operation
from istanas_jax.space.search_space import Space
from istanas_jax.space.spaces import DARTS, SPACES, read_space

DIGITS = str(ROOT / "configs" / "digits.py:tiny")
UNEVEN = replace(DARTS, nodes=3, s=(1, 3, 2))


def space_of(*overrides):
    return read_space(load_config(DIGITS, [f"--config.space.{o}" for o in overrides]).space)


def test_named_spaces():
    own = ["darts", "darts_no_skip", "nas_bench_201", "s1", "s2", "s3", "s4"]
    suite = [net + ops for net in ("wide", "deep", "single_cell")
             for ops in ("", "_no_skip", "_all_skip")]  # fmt: skip
    assert list(SPACES) == own + suite
    assert SPACES["s3"].operations == ("none", "skip_connect", "sep_conv_3x3")
    assert SPACES["s4"].operations == ("noise", "sep_conv_3x3")
    assert "skip_connect" not in SPACES["darts_no_skip"].operations


def test_s1_as_published():
    """Each edge has two operations; how often each occurs, counted by hand in the release."""
    normal, reduction = (
        Counter(name for edge in cell for name in edge) for cell in SPACES["s1"].candidates
    )
    assert all(len(edge) == 2 for cell in SPACES["s1"].candidates for edge in cell)
    assert normal == {
        "skip_connect": 12,
        "dil_conv_3x3": 6,
        "sep_conv_3x3": 4,
        "dil_conv_5x5": 4,
        "max_pool_3x3": 2,
    }
    assert reduction == {
        "max_pool_3x3": 8,
        "avg_pool_3x3": 6,
        "skip_connect": 6,
        "dil_conv_5x5": 5,
        "dil_conv_3x3": 2,
        "sep_conv_3x3": 1,
    }
    assert SPACES["s1"].candidates[0][5] == ("max_pool_3x3", "skip_connect")
    assert SPACES["s1"].candidates[1][6] == ("max_pool_3x3", "sep_conv_3x3")


@pytest.mark.parametrize("space", [*SPACES.values(), UNEVEN], ids=lambda space: space.name)
def test_random_genotypes_have_allowed_connections_only(space):
    seen = set()
    for seed in range(200):
        genotype = random_genotype(seed, space)
        for c, cell in enumerate((genotype.normal, genotype.reduce)):
            for j, node in enumerate(cell):
                chosen = [c for c in node if c.operation != "auxiliary_skip"]
                assert len(chosen) == space.kept(j)
                beside = [c.predecessor for c in node if c not in chosen]
                assert beside == [c.predecessor for c in chosen if space.auxiliary]
                for connection in chosen:
                    edge = j * (j + 3) // 2 + connection.predecessor
                    own = space.candidates[c][edge] if space.candidates else space.operations
                    assert connection.operation in own
                    seen.add((c, j, connection))
        assert Genotype.from_supports(*genotype.supports(space), space) == genotype
    every = sum(len(space.candidates_of(c, j)) for c in range(2) for j in range(space.nodes))
    assert len(seen) == every


def test_rules_of_a_space():
    apart = replace(SPACES["s2"], distinct=True)
    alike = replace(DARTS, alike=True)
    for seed in range(50):
        for node in random_genotype(seed, apart).normal:
            assert len({connection.predecessor for connection in node}) == 2
        genotype = random_genotype(seed, alike)
        assert genotype.normal == genotype.reduce
    assert any(g.normal != g.reduce for g in map(random_genotype, range(3)))


def test_supports_of_nodes_that_differ():
    """An array repeats a node's last pick; a genotype does not have it."""
    padded = [[[5, 5, 5], [1, 9, 20], [3, 8, 8]]] * 2
    genotype = Genotype.from_supports(*padded, UNEVEN)
    assert list(map(len, genotype.normal)) == [1, 3, 2]
    assert genotype.supports(UNEVEN)[0] == ((5,), (1, 9, 20), (3, 8))
    assert Genotype.from_json(genotype.to_json()) == genotype
    assert Genotype.from_text(genotype.to_text()) == genotype
    assert in_order_of(genotype, padded)[0] == [[5], [20, 9, 1], [8, 3]]
    assert UNEVEN.ranks == [[0, 0, 0], [0, 1, 2], [0, 1, 1]]


def test_weight_free_connections():
    cell = [[("none", 0), ("noise", 1)], [("sep_conv_3x3", 0), ("skip_connect", 2)]]
    assert weight_free(Genotype(cell, [2, 3], cell, [2, 3])) == [3, 3]
    s4 = SPACES["s4"]
    assert s4.weight_free([[0, 1], [2, 3]]) == 2  # noise has the even flat indices


def test_skips_beside_connections_are_not_chosen():
    space = SPACES["deep_all_skip"]
    genotype = random_genotype(0, space)
    assert all(len(node) == 4 for node in genotype.normal)
    assert genotype.supports(space) == random_genotype(0, space).supports(space)
    without = [[c for c in node if c.operation != "auxiliary_skip"] for node in genotype.normal]
    plain = Genotype(without, (2, 3, 4, 5), without, (2, 3, 4, 5))
    assert weight_free(genotype)[0] == weight_free(plain)[0]
    ones = in_order_of(genotype, [[[0.7, 0.3]] * 4] * 2)
    assert ones[0][0] == [1.0, 1.0, 0.3, 0.7]
    assert len(space.candidates_of(0, 0)) == 14 and len(space.everything_at(0, 0)) == 16


def test_what_a_config_asks_for():
    assert space_of() == DARTS
    assert space_of("name=s2") == SPACES["s2"]
    assert space_of("nodes=3", "s=(1,2,3)") == replace(DARTS, nodes=3, s=(1, 2, 3))
    assert space_of("name=s2", "s=1", "distinct=True").kept(3) == 1
    some = space_of("operations=('skip_connect','sep_conv_3x3')", "alike=True")
    assert (some.num_ops, some.alike, some.zero) == (2, True, True)
    fewer = space_of("name=s1", "nodes=2")
    assert fewer.candidates == tuple(cell[:5] for cell in SPACES["s1"].candidates)


def test_a_space_in_a_file():
    for space in (*SPACES.values(), UNEVEN):
        assert Space.from_dict(space.to_dict()) == space
        assert hash(Space.from_dict(space.to_dict())) == hash(space)
    genotype = random_genotype(0, SPACES["s2"])
    assert Genotype.from_dict(genotype.to_dict() | {"space": SPACES["s2"].to_dict()}) == genotype


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["name=s7"], "space.name is s7, it must be one of darts, darts_no_skip,"),
        (["operations=('sep_conv3x3',)"], "unknown operation 'sep_conv3x3' (did you mean sep_conv"),
        (["operations=('noise','noise')"], "space darts: an operation is listed twice among noise"),
        (["name=s2", "s=5"], "node 0 of the normal cell keeps 5 connections, but it has 4 cand"),
        (["s=(2,2)"], "space darts: s has 2 numbers, but there are 4 nodes"),
        (["s=3", "distinct=True"], "node 0 of the normal cell keeps 3 connections of different"),
        (["name=s1", "operations=('skip_connect','sep_conv_3x3')"], "edge 12 of the normal cell"),
        (["name=s1", "nodes=5"], "space s1: candidates must be given for all 20 edges of both"),
        (["operations=('gone.py:squeeze',)"], "operation gone.py:squeeze: there is no file gone"),
        (["name=wide_all_skip", "distinct=False"], "auxiliary_skip needs distinct = True"),
        (["nodes=1"], "space.nodes is 1, it must be a whole number from 2 to 12, or 0"),
    ],
)
def test_bad_spaces(overrides, sentence):
    with pytest.raises(ConfigError) as error:
        space_of(*overrides)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_candidates_that_do_not_fit():
    with pytest.raises(ValueError, match="both cells are alike, but their candidates are not"):
        replace(SPACES["s1"], alike=True)
    edges = (("noise",),) * 5
    with pytest.raises(ValueError, match="noise is a candidate of edge 0 of the normal cell, but"):
        replace(DARTS, nodes=2, candidates=(edges, edges))


def test_an_operation_without_stride_2():
    sentence = "operation lazy has no stride 2: 8 channels of 8 x 8 pixels become 8 of 8 x 8"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        Operation("lazy", lambda stride: (Relu(),), "blue")


def test_old_names_are_told():
    with pytest.raises(ConfigError, match=r"architecture.nodes, it is now called space.nodes"):
        load_config(DIGITS, ["--config.architecture.nodes=3"])


def test_connections_of_a_space():
    s1 = SPACES["s1"]
    for c in range(len(CELL_TYPES)):
        for j in range(s1.nodes):
            some = s1.candidates_of(c, j)
            assert [flat for flat, own in enumerate(s1.exists[c][j]) if own] == some
            assert [s1.flat(s1.connection(flat)) for flat in some] == some
    assert find_operation("noise").weight_free
    assert DARTS.connection(17) == Connection("sep_conv_3x3", 2)


def test_the_order_of_connections_does_not_count():
    """A node that keeps one of two repeats it: the width of arrays is no connection."""
    uneven = replace(SPACES["s2"], nodes=2, s=(1, 2))
    before, now = [[[1, 1], [0, 5]]] * 2, [[[1, 1], [5, 0]]] * 2
    assert uneven.without_order(before) == uneven.without_order(now) == [[[1], [0, 5]]] * 2
    swapped = replace(SPACES["s2"], nodes=2, s=(2, 3))
    a, b = [[[0, 3, 3], [0, 1, 2]]], [[[3, 0, 0], [2, 1, 0]]]
    assert swapped.without_order(a) == swapped.without_order(b)


def test_a_file_of_operations_is_run_once(tmp_path):
    """Also one whose dataclasses have fields with names for types."""
    file = tmp_path / "mine.py"
    file.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from pathlib import Path\n"
        "from istanas_jax.space.layers import Layer, Norm\n"
        "from istanas_jax.space.operations import Operation\n"
        f"times = Path({str(tmp_path / 'times')!r})\n"
        "times.write_text(times.read_text() + 'x' if times.exists() else 'x')\n"
        "@dataclass(frozen=True)\n"
        "class Times(Layer):\n"
        "    factor: float = 2.0\n"
        "    def apply(self, x):\n"
        "        return self.factor * x\n"
        "pools = lambda stride: (MaxPool(stride), Times())\n"
        "from istanas_jax.space.layers import MaxPool\n"
        "one = Operation('one', pools, 'blue')\n"
        "two = Operation('two', pools, 'blue')\n"
    )
    for name in ("one", "two"):
        assert find_operation(f"{file}:{name}").name == f"{file}:{name}"
    assert (tmp_path / "times").read_text() == "x"


@pytest.mark.parametrize(
    ("variant", "overrides", "sentence"),
    [
        (
            "one_stage_tiny",
            ["space.operations=('skip_connect','examples/my_operations.py:squeeze')"],
            "my_operations.py:squeeze does not end in a batch norm, which a one-stage run needs",
        ),
        (
            "tiny",
            ["space.alike=True", "search.ista.budget.max_latency_ms=5.0"],
            "search.ista.budget does not work with space.alike",
        ),
    ],
)
def test_what_a_run_cannot_do_with_a_space(variant, overrides, sentence, monkeypatch):
    monkeypatch.chdir(ROOT)
    spec = str(ROOT / "configs" / f"digits.py:{variant}")
    config = load_config(spec, [f"--config.{override}" for override in overrides])
    with pytest.raises(ValueError, match=re.escape(sentence)):
        check_config(config, devices=1)
