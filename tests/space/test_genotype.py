import copy
import dataclasses
import json
import pickle
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from places import SHARED

from istanas_jax.space import genotype
from istanas_jax.space.connections import Connection
from istanas_jax.space.genotype import Genotype, GenotypeError
from istanas_jax.space.operations import BY_NAME
from istanas_jax.space.spaces import DARTS

SHARED = SHARED / "genotypes.json"
anytime = settings(deadline=None)

DARTS_V2_TEXT = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), "
    "('sep_conv_3x3', 1), ('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), "
    "('dil_conv_3x3', 2)], normal_concat=range(2, 6), reduce=[('max_pool_3x3', 0), "
    "('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), ('max_pool_3x3', 0), "
    "('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], reduce_concat=range(2, 6))"
)


@st.composite
def genotypes(draw, operations=tuple(BY_NAME), all_nodes_in_concat=False):
    s = draw(st.integers(1, 3))

    def cell():
        return tuple(
            tuple(
                Connection(draw(st.sampled_from(operations)), draw(st.integers(0, node + 1)))
                for _ in range(s)
            )
            for node in range(draw(st.integers(1, 6)))
        )

    def concat(nodes):
        everything = list(range(2, 2 + nodes))
        if all_nodes_in_concat:
            return everything
        return draw(st.lists(st.sampled_from(everything), min_size=1, unique=True))

    normal, reduce = cell(), cell()
    return Genotype(normal, concat(len(normal)), reduce, concat(len(reduce)))


@anytime
@given(genotypes())
def test_json_round_trip(drawn):
    assert Genotype.from_json(drawn.to_json()) == drawn
    assert genotype.load(drawn.to_json()) == drawn


@anytime
@given(genotypes())
def test_text_round_trip(drawn):
    assert Genotype.from_text(drawn.to_text()) == drawn
    assert genotype.load(f"  {drawn}\n") == drawn


@anytime
@given(genotypes(operations=DARTS.operations, all_nodes_in_concat=True))
def test_supports_round_trip(drawn):
    assert Genotype.from_supports(*drawn.supports()) == drawn


def test_supports_are_flat_indices_strongest_first():
    normal, reduce = genotype.load("ISTA_twostage").supports()
    # The release lists skip_connect 0, dil_conv_3x3 1 for the first node: weaker pick first.
    assert normal == ((1 * 7 + 5, 2), (2 * 7 + 5, 4), (3, 1 * 7 + 5), (2, 2 * 7 + 3))
    assert reduce[0] == (1 * 7 + 4, 1)
    np = pytest.importorskip("numpy")
    assert Genotype.from_supports(np.array(normal), np.array(reduce)) == genotype.load(
        "ISTA_twostage"
    )


def test_flat_and_nested_cells_are_the_same():
    nested = genotype.load("NASNet_A")
    flat = [pair for node in nested.normal for pair in node]
    assert dataclasses.replace(nested, normal=flat) == nested
    assert json.loads(nested.to_json())["normal"] == [list(pair) for pair in flat]


def test_text_is_that_of_darts():
    assert genotype.load("DARTS_V2").to_text() == DARTS_V2_TEXT
    assert Genotype.from_text(DARTS_V2_TEXT) == genotype.load("DARTS_V2")
    assert "reduce_concat=[3, 4, 6])" in genotype.load("AmoebaNet_A").to_text()


def test_immutable_and_hashable():
    one, other = Genotype.from_text(DARTS_V2_TEXT), Genotype.from_text(DARTS_V2_TEXT)
    assert hash(one) == hash(other)
    assert len({one, other, genotype.load("SNAS")}) == 2
    assert pickle.loads(pickle.dumps(one)) == one == copy.deepcopy(one)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.normal = ()
    with pytest.raises(TypeError):
        genotype.published()["SNAS"] = one


def edited(path, value):
    """The JSON content of DARTS_V2 with the item at `path` replaced."""
    content = json.loads(genotype.load("DARTS_V2").to_json())
    *parents, last = path
    item = content
    for step in parents:
        item = item[step]
    item[last] = value
    return content


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (
            ("normal", 6, 1),
            7,
            "normal cell, node 3, first connection: predecessor 7 is out of range, expected 0 to 4",
        ),
        (
            ("reduce", 1, 1),
            -1,
            "reduce cell, node 0, second connection: predecessor -1 is out of range, "
            "expected 0 to 1",
        ),
        (
            ("normal", 3, 1),
            True,
            "normal cell, node 1, second connection: predecessor True is not a whole number",
        ),
        (
            ("normal", 3, 1),
            1.0,
            "normal cell, node 1, second connection: predecessor 1.0 is not a whole number",
        ),
        (
            ("reduce", 4, 0),
            "Sep_conv3x3",
            "reduce cell, node 2, first connection: unknown operation 'Sep_conv3x3' "
            "(did you mean sep_conv_3x3?)",
        ),
        (
            ("reduce", 4, 0),
            "inception",
            "reduce cell, node 2, first connection: unknown operation 'inception' "
            f"(expected one of {', '.join(tuple(BY_NAME))})",
        ),
        (
            ("normal", 0),
            [0, "skip_connect"],
            "normal cell, node 0, first connection: expected (operation, predecessor), "
            "found [0, 'skip_connect']",
        ),
        (
            ("normal", 5),
            ["skip_connect", 0, 1],
            "normal cell, node 2, second connection: expected (operation, predecessor), "
            "found ['skip_connect', 0, 1]",
        ),
        (
            ("normal",),
            [["skip_connect", 0]] * 7,
            "normal cell: a flat list has two connections per node, found 7 in all",
        ),
        (
            ("reduce",),
            [[["skip_connect", 0]] * 2, []],
            "reduce cell, node 1: expected its connections, found []",
        ),
        (("normal",), [], "normal cell: expected a non-empty list of nodes, found []"),
        (("normal",), "DARTS", "normal cell: expected a non-empty list of nodes, found 'DARTS'"),
        (("normal",), [5], "normal cell, node 0: expected its connections, found 5"),
        (("normal_concat",), [], "normal concat: expected a non-empty list of nodes, found []"),
        (("normal_concat",), 5, "normal concat: expected a non-empty list of nodes, found 5"),
        (
            ("reduce_concat",),
            [2, 6],
            "reduce concat: node 6 is out of range, expected 2 to 5",
        ),
        (("reduce_concat",), [1, 2], "reduce concat: node 1 is out of range, expected 2 to 5"),
        (("reduce_concat",), [2, 3, 2], "reduce concat: node 2 is listed twice"),
        (("reduce_concat",), [2, "3"], "reduce concat: '3' is not a whole number"),
        (("normal_conat",), [2], "unknown field 'normal_conat' (did you mean normal_concat?)"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(path, value, sentence):
    with pytest.raises(GenotypeError, match=f"^{re.escape(sentence)}$"):
        Genotype.from_json(json.dumps(edited(path, value)))


@pytest.mark.parametrize(
    ("normal", "sentence"),
    [
        ([[14, 0]], "normal cell, node 0: flat index 14 is out of range, expected 0 to 13"),
        ([[0, 1], [-1, 0]], "normal cell, node 1: flat index -1 is out of range, expected 0 to 20"),
        ([[0, 0.5]], "normal cell, node 0: flat index 0.5 is out of range, expected 0 to 13"),
        ([], "normal cell: expected a non-empty list of nodes"),
    ],
)
def test_impossible_supports_are_refused(normal, sentence):
    with pytest.raises(GenotypeError, match=f"^{re.escape(sentence)}"):
        Genotype.from_supports(normal, [[0, 1]])


def test_supports_of_operations_that_are_never_searched():
    sentence = "reduce cell, node 0: operation 'sep_conv_7x7' is not among the 7 candidates"
    with pytest.raises(GenotypeError, match=f"^{re.escape(sentence)}"):
        genotype.load("NASNet_A").supports()


def test_every_published_genotype_has_its_size():
    for name in genotype.published():
        cifar10, imagenet = genotype.published_parameters(name)
        assert 2_000_000 < cifar10 < imagenet < 7_000_000
    assert genotype.published_parameters("ISTA_twostage").cifar10_36x20 == 3_316_726
    assert genotype.published_parameters("ISTA_ImageNet").imagenet_48x14 == 5_651_392
    with pytest.raises(GenotypeError, match="did you mean ISTA_ImageNet"):
        genotype.published_parameters("ISTA_Imagenet")


def test_published_genotypes_equal_the_documented_ones():
    if not SHARED.is_file():
        pytest.skip("the documented genotypes, ../shared/genotypes.json, are not beside this tree")
    documented = json.loads(SHARED.read_text(encoding="utf-8"))
    assert list(documented) == list(genotype.published())
    for name, content in documented.items():
        sizes = content.pop("parameters_cifar10_36x20"), content.pop("parameters_imagenet_48x14")
        assert sizes == genotype.published_parameters(name)
        assert Genotype.from_json(json.dumps(content)) == genotype.load(name)
