"""Forms for one platform: which are traced, and that none is used for another."""

import jax
import jax.numpy as jnp
from jax import export

from istanas_jax.devices.platforms import by_platform, only


def forms(traced):
    def cpu(x):
        traced.append("cpu")
        return 2 * x

    def default(x):
        traced.append("default")
        return 3 * x

    return lambda x: by_platform(x, cpu=cpu, default=default)


def test_only_the_known_form_is_traced():
    for platform, expected in (("cpu", 2), ("tpu", 3), ("cuda", 3)):
        traced = []
        assert jax.jit(only(platform, forms(traced)))(1.0) == expected
        assert traced == ["cpu" if platform == "cpu" else "default"]


def test_where_it_is_not_known_the_compiler_decides():
    traced = []
    f = jax.jit(forms(traced))
    assert f(1.0) == 2
    assert set(traced) == {"cpu", "default"}
    everywhere = export.export(f, platforms=("cpu", "tpu"))(jnp.float32(1))
    assert everywhere.call(1.0) == 2


def test_what_was_traced_for_one_platform_is_not_used_for_another():
    f = jax.jit(forms([]))  # one function, as the operations of a cell are
    assert [only(name, f)(1.0) for name in ("cpu", "tpu", "cpu")] == [2, 3, 2]
