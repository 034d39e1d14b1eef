"""The architecture's state against the paper's equations and the released code's numbers."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from istanas_jax.space import connections
from istanas_jax.space.spaces import DARTS
from istanas_jax.sparse_coding.architecture import (
    ArchState,
    Coding,
    Freezing,
    coefficients,
    draw_support,
    freeze,
    init_architecture,
    keep_support,
    move,
    recover,
    straight_coefficients,
)

LAM = 1e-5
CODING = Coding(lam=LAM, whole_distance=False)
jit_recover = jax.jit(partial(recover, coding=CODING))


@pytest.fixture(scope="module")
def arch() -> ArchState:
    key = jax.random.key(0)
    init = partial(init_architecture, coding=CODING, sigma=1e-2)
    recovery = jax.jit(init)(key)
    assert recovery.certified
    return recovery.arch


def per_node(arch: ArchState):
    for c in range(2):
        for j in range(4):
            S = np.asarray(arch.support[c, j])
            A = np.asarray(arch.A[c, j], np.float64)
            yield (c, j), A, S, np.asarray(arch.b[c, j], np.float64), np.asarray(arch.z[c, j])


@pytest.mark.slow
def test_first_recovery(arch):
    assert arch.support.shape == (2, 4, 2)
    for (_, node), _, S, _, z in per_node(arch):
        assert S.max() < DARTS.num_candidates(node)
        assert set(np.argsort(-np.abs(z))[:2]) == set(S)
        assert np.abs(z[S[0]]) >= np.abs(z[S[1]])


def test_coefficients_are_z_plus_the_back_projected_residual(arch):
    """w_S = z_S + A_Sᵀ(b - A_S z_S), the released code's form of Eq. (network_s)."""
    w = coefficients(arch)
    for place, A, S, b, z in per_node(arch):
        expected = z[S] + A[:, S].T @ (b - A[:, S] @ z[S])
        np.testing.assert_allclose(w[place], expected, atol=1e-7)  # float32, terms below 0.1


def test_coefficients_equal_z_when_b_is_its_code(arch):
    z = keep_support(arch.z, arch.support)
    b = jnp.einsum("cjmn,cjn->cjm", arch.A, z, precision="highest")
    w = coefficients(arch.replace(b=b))
    z_S = jnp.take_along_axis(arch.z, arch.support, -1)
    np.testing.assert_allclose(w, z_S, atol=1e-7)  # float32, terms below 0.1


def test_gradient_reaches_b_through_b_A_alone(arch):
    weights = np.random.default_rng(0).standard_normal(arch.support.shape).astype(np.float32)

    def loss(b):
        return jnp.sum(weights * coefficients(arch.replace(b=b)))

    gradient = jax.grad(loss)(arch.b)
    for (c, j), A, S, _, _ in per_node(arch):
        np.testing.assert_allclose(gradient[c, j], A[:, S] @ weights[c, j], rtol=1e-5)


@pytest.mark.slow
def test_gradient_through_z_against_finite_differences(arch):
    """With z(b), w_S moves with z_S as well: compare with recoveries around b."""
    weights = np.random.default_rng(1).standard_normal(arch.support.shape).astype(np.float32)
    direction = np.random.default_rng(2).standard_normal(arch.b.shape).astype(np.float32)

    @jax.jit
    def loss(b):
        return jnp.sum(weights * coefficients(arch.replace(b=b), implicit_lam=LAM))

    slope = jnp.sum(jax.grad(loss)(arch.b) * direction)
    h = 1e-5
    difference = (loss(arch.b + h * direction) - loss(arch.b - h * direction)) / (2 * h)
    # The difference of two float32 losses of about 0.1 has 1e-8 / 2e-5 of noise.
    np.testing.assert_allclose(slope, difference, rtol=5e-3, atol=2e-3)
    constant_z = jax.grad(lambda b: jnp.sum(weights * coefficients(arch.replace(b=b))))(arch.b)
    assert abs(jnp.sum(constant_z * direction) - slope) > 0.01 * abs(slope)


def test_distance_is_that_of_the_kept_entries(arch):
    moved = arch.replace(b=arch.b * 1.5)
    recovery = jit_recover(moved)
    for place, *_ in per_node(arch):
        difference = np.zeros(35)
        np.add.at(difference, np.asarray(recovery.arch.support[place]), 1.0)
        new = np.where(difference > 0, recovery.arch.z[place], 0)
        old = np.zeros(35)
        S = np.asarray(arch.support[place])
        old[S] = np.asarray(arch.z[place])[S]
        expected = np.linalg.norm(new - old)
        np.testing.assert_allclose(recovery.distance[place], expected, rtol=1e-5)


def test_distance_of_all_entries(arch):
    """As the release takes it."""
    recovery = jax.jit(partial(recover, coding=Coding(lam=LAM)))(arch.replace(b=arch.b * 1.5))
    expected = np.linalg.norm(recovery.arch.z - arch.z, axis=-1)
    np.testing.assert_allclose(recovery.distance, expected, rtol=1e-5)
    kept = jit_recover(arch.replace(b=arch.b * 1.5)).distance
    assert (kept < recovery.distance).all()


def test_freezing_rules(arch):
    distance = jnp.full((2, 4), 1.0).at[0, 1].set(1e-3).at[1, 2].set(1.1e-3)
    alone = Freezing("node", 1e-3)
    frozen = freeze(arch, distance, alone)
    assert np.argwhere(frozen.frozen).tolist() == [[0, 1]]
    still = freeze(frozen, jnp.full((2, 4), 1.0), alone).frozen
    assert np.argwhere(still).tolist() == [[0, 1]]
    assert not freeze(arch, distance, Freezing("together", 1e-3)).frozen.any()
    small = jnp.full((2, 4), 1e-3 / 8**0.5)  # of all eight together 1e-3
    assert freeze(arch, 0.99 * small, Freezing("together", 1e-3)).frozen.all()
    assert not freeze(arch, 1.01 * small, Freezing("together", 1e-3)).frozen.any()
    assert not freeze(arch, 0 * distance, Freezing("never", 1e-3)).frozen.any()


def test_straight_coefficients_have_the_gradient_of_the_paper(arch):
    """Their value is 1 / s; their gradient that of Eq. (network_s), A_S times the outer one."""
    outer = jnp.asarray(np.random.default_rng(0).standard_normal((2, 4, 2)), jnp.float32)
    np.testing.assert_allclose(straight_coefficients(arch), 0.5, atol=1e-7)
    gradients = [
        jax.grad(lambda b, f=f: jnp.sum(outer * f(arch.replace(b=b))))(arch.b)
        for f in (straight_coefficients, coefficients)
    ]
    np.testing.assert_allclose(*gradients, rtol=1e-5)  # the same product in float32


def test_compared_coefficients_have_the_gradient_of_a_difference(arch):
    """With outer gradient g, each connection of a node gets g minus the mean over the node."""
    outer = np.random.default_rng(0).standard_normal((2, 4, 2)).astype(np.float32)
    compared = partial(straight_coefficients, compare=True)
    np.testing.assert_allclose(compared(arch), 0.5, atol=1e-7)
    found = jax.grad(lambda b: jnp.sum(outer * compared(arch.replace(b=b))))(arch.b)
    for cell, node in np.ndindex(2, 4):
        g = outer[cell, node] - outer[cell, node].mean()
        A_S = np.asarray(arch.A)[cell, node][:, np.asarray(arch.support)[cell, node]]
        np.testing.assert_allclose(found[cell, node], A_S @ g, rtol=1e-4, atol=1e-6)


def test_supports_are_drawn_evenly():
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = np.asarray(jax.vmap(lambda key: draw_support(key, Coding()))(keys))
    assert (drawn[..., 0] != drawn[..., 1]).all()
    for node, n in enumerate((14, 21, 28, 35)):
        counts = np.bincount(drawn[:, 0, node].ravel(), minlength=35)
        assert not counts[n:].any()
        expected = 4000 * 2 / n
        assert np.abs(counts[:n] - expected).max() < 5 * expected**0.5  # five deviations
    apart = np.asarray(jax.vmap(lambda key: draw_support(key, Coding(distinct=True)))(keys))
    assert np.array_equal(apart, drawn)  # candidates of one predecessor are compared, too


def test_frozen_nodes_stand_still_to_the_bit(arch):
    frozen = arch.replace(frozen=arch.frozen.at[1, 2].set(True))
    recovery = jit_recover(move(frozen, arch.b + 0.05))
    after = recovery.arch
    for name in ("b", "z", "support"):
        assert np.array_equal(getattr(after, name)[1, 2], getattr(arch, name)[1, 2])
        assert not np.array_equal(getattr(after, name)[1, 1], getattr(arch, name)[1, 1])
    assert recovery.distance[1, 2] == 0
    assert recovery.distance[1, 1] > 0


def test_nan_in_b_is_not_certified(arch):
    broken = jit_recover(arch.replace(b=arch.b * jnp.nan))
    assert not broken.certified


def test_too_many_connections_are_refused():
    with pytest.raises(ValueError, match="keeps 36 connections"):
        init_architecture(jax.random.key(0), Coding(space=replace(DARTS, s=36)), sigma=1e-3)


def test_agrees_with_the_release(shared):
    """Coefficients from A, z, b and support, as the released code gives them."""
    arrays = np.load(shared / "parity" / "supernet_two_stage.npz")
    n = replace(DARTS, nodes=4).max_candidates
    types = ("normal", "reduce")

    def stack(name):
        rows = [[arrays[f"{cell_type}/{name}{j}"] for j in range(4)] for cell_type in types]
        pad = [
            [np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, n - a.shape[-1])]) for a in r] for r in rows
        ]
        return np.array(pad, np.float32)

    support = np.array(
        [[arrays[f"{cell_type}/support{j}"] for j in range(4)] for cell_type in types]
    )
    arch = ArchState(
        b=np.stack([arrays[f"{cell_type}/b"] for cell_type in types]),
        A=stack("A"),
        z=stack("z"),
        support=support.astype(np.int32),
        frozen=np.zeros((2, 4), bool),
    )
    w = np.asarray(coefficients(arch))
    for c, cell_type in enumerate(types):
        table = np.zeros((14, 7))
        for node in range(4):
            for slot in range(2):
                predecessor, op = DARTS.split_index(support[c, node, slot])
                table[connections.edge_index(node, predecessor), op] = w[c, node, slot]
        np.testing.assert_allclose(table, arrays[f"coefficients/{cell_type}"], atol=1e-6)
