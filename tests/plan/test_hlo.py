"""What is read from the text of compiled programs."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from istanas_jax.plan import hlo

PROGRAM = """HloModule jit_step

%fused (x: f32[2]) -> f32[2] {
  ROOT %never = f32[2]{0} add(%x, %x), backend_config={"estimated_cycles":"1000000"}
}

%body (arg: (s32[], f32[2,3])) -> (s32[], f32[2,3]) {
  %one = s32[]{:T(128)} constant(1)
  %r = f32[2,3]{1,0} all-reduce(%x), replica_groups={}, backend_config={"estimated_cycles":"5"}
  %f = f32[2]{0} fusion(%r), calls=%fused, backend_config={"estimated_cycles":"10"}
}

%condition (arg: (s32[], f32[2,3])) -> pred[] {
  %limit = s32[]{:T(128)} constant(9)
  ROOT %lt = pred[]{:T(512)} compare(%i, %limit), direction=LT
}

%small.1 (x: f32[2]) -> f32[2] {
  ROOT %s = f32[2]{0} copy(%x), backend_config={"estimated_cycles":"20"}
}

%large-2 (x: f32[2]) -> f32[2] {
  ROOT %l = f32[2]{0} copy(%x), backend_config={"estimated_cycles":"40"}
}

ENTRY %main (x: f32[2]) -> f32[2] {
  %b = (bf16[8]{0:T(128)}, f32[]{:T(128)}) all-reduce-start(%y, %z), channel_id=1
  %c = f32[100]{0} add(%a, %b), backend_config={"estimated_cycles":"7"}
  %d = f32[7] all-reduce-done(%b)
  %w = (s32[], f32[2,3]) while(%t), condition=%condition, body=%body, metadata={}
  ROOT %k = f32[2]{0} conditional(%i, %x, %x), branch_computations={%small.1, %large-2}
}
"""


def test_loops_and_alternatives():
    assert hlo.estimated_cycles(PROGRAM) == 7 + 9 * (5 + 10) + (20 + 40) / 2
    assert hlo.reduced_bytes(PROGRAM) == (8 * 2 + 4) + 9 * (2 * 3 * 4)


@pytest.mark.parametrize("turns", [3, 11])
def test_loops_of_a_real_program(turns):
    """One that sorts in each turn, and once more."""

    def program(x, w):
        return jnp.sort(lax.scan(lambda x, w: (jnp.sort(x * w), None), x, w)[0] + 1)

    x, w = jnp.ones(64), jnp.ones((turns, 64))
    text = jax.jit(program).lower(x, w).compile().as_text()
    assert hlo.add_up(text, lambda line: " sort(" in line) == turns + 1
