"""Every method follows the space: candidates of edges, connections of nodes, alike cells."""

import jax
import numpy as np
import pytest
from allowed import assert_allowed
from tiny_methods import make

from istanas_jax.methods import METHODS
from istanas_jax.space.genotype import Genotype
from istanas_jax.sparse_coding.architecture import recover

OWN = {
    "random": ["search.random.genotypes=2", "search.epochs=2"],
    "pdarts": [
        "search.pdarts.stage_cells=(1, 1)",
        "search.pdarts.candidates=(8, 3)",
        "search.pdarts.dropout=(0.0, 0.4)",
    ],
}
ASKED = {
    "s1": ["space.name=s1"],
    "s3": ["space.name=s3"],
    "uneven": ["space.name=s2", "space.s=(2,1)"],
    "alike": ["space.name=s2", "space.alike=True"],
    "apart": ["space.name=s2", "space.distinct=True"],
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ASKED)
def test_what_a_method_reads_off(method, name):
    """From many random starts; a table keeps no zero operation, as DARTS does."""
    made = make(method, *ASKED[name], *OWN.get(method, []))
    space = made.space

    def read_off(key):
        arch = made.init_variables(key)
        if method == "ista":
            arch = recover(arch.replace(b=1e3 * arch.b), made.coding).arch
        return made.snapshot(arch)

    shown = jax.device_get(jax.jit(jax.vmap(read_off))(jax.random.split(jax.random.key(0), 20)))
    for support, weights, z in zip(
        shown["support"], shown["coefficients"], shown["z"], strict=True
    ):
        genotype = Genotype.from_supports(*support.tolist(), space)
        assert_allowed(genotype, space, zero=method in ("ista", "random"))
        assert np.all(np.isfinite(weights)) and np.all(np.isfinite(z))
        assert not np.any(z[~np.array(space.exists)]) or method == "nasp"
    if space.uneven:
        assert not np.any(shown["coefficients"][:, :, 1, 1:]) or method == "random"
