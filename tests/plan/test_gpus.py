"""Plans for GPUs that are not there: what the compiler is told, and what its programs tell."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest
from places import ROOT
from tiny_space import TINY_SPACE_FLAGS

from istanas_jax.plan import gpus, topologies
from istanas_jax.plan.gpu_hlo import GpuProgram, read, size_of

# A loop of three turns around a call of cuDNN, a transpose of images, a slice and an update.
PROGRAM = """HloModule jit_step

%wrapped_transpose (param_0.1: f32[8,32,32,16]) -> f32[8,16,32,32] {
  %param_0.1 = f32[8,32,32,16]{3,2,1,0} parameter(0)
  ROOT %transpose.1 = f32[8,16,32,32]{3,2,1,0} transpose(%param_0.1), dimensions={0,3,1,2}
}

%sliced (param_0.2: f32[6,1024], param_1.2: s32[]) -> f32[1024] {
  %param_0.2 = f32[6,1024]{1,0} parameter(0)
  %param_1.2 = s32[] parameter(1)
  %zero = s32[] constant(0)
  %slice.1 = f32[1,1024]{1,0} dynamic-slice(%param_0.2, %param_1.2, %zero), dynamic_slice_sizes={1,1024}
  %flat = f32[1024]{0} bitcast(%slice.1)
  ROOT %twice = f32[1024]{0} add(%flat, %flat)
}

%updated (param_0.3: f32[6,1024], param_1.3: f32[1,1024], param_2.3: s32[]) -> f32[6,1024] {
  %param_0.3 = f32[6,1024]{1,0} parameter(0)
  %param_1.3 = f32[1,1024]{1,0} parameter(1)
  %param_2.3 = s32[] parameter(2)
  ROOT %dus = f32[6,1024]{1,0} dynamic-update-slice(%param_0.3, %param_1.3, %param_2.3, %param_2.3)
}

%body (arg: (s32[], f32[6,1024])) -> (s32[], f32[6,1024]) {
  %arg = (s32[], f32[6,1024]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%arg), index=0
  %states = f32[6,1024]{1,0} get-tuple-element(%arg), index=1
  %x = f32[1024]{0} fusion(%states, %i), kind=kLoop, calls=%sliced
  %row = f32[1,1024]{1,0} bitcast(%x)
  %more = f32[6,1024]{1,0} fusion(%states, %row, %i), kind=kLoop, calls=%updated
  ROOT %out = (s32[], f32[6,1024]{1,0}) tuple(%i, %more)
}

%condition (arg.1: (s32[], f32[6,1024])) -> pred[] {
  %limit = s32[] constant(3)
  ROOT %lt = pred[] compare(%j, %limit), direction=LT
}

ENTRY %main (images: f32[8,32,32,16], kernel: f32[16,16,3,3]) -> f32[8,16,32,32] {
  %images = f32[8,32,32,16]{3,2,1,0} parameter(0)
  %kernel = f32[16,16,3,3]{3,2,1,0} parameter(1)
  %turned = f32[8,16,32,32]{3,2,1,0} fusion(%images), kind=kInput, calls=%wrapped_transpose
  %small = f32[16,3,3,16]{3,2,1,0} transpose(%kernel), dimensions={0,2,3,1}
  %same = f32[8,16,32,32]{3,2,1,0} copy(%turned)
  %other = f32[8,16,32,32]{1,3,2,0} copy(%same)
  %conv = (f32[8,16,32,32]{3,2,1,0}, u8[0]{0}) custom-call(%same, %kernel), window={size=3x3}, custom_call_target="__cudnn$convForward"
  %w = (s32[], f32[6,1024]{1,0}) while(%t), condition=%condition, body=%body
  ROOT %y = f32[8,16,32,32]{3,2,1,0} get-tuple-element(%conv), index=0
}
"""  # noqa: E501  lines as the compiler prints them
IMAGES, KERNEL, STATE = 4 * 8 * 32 * 32 * 16, 4 * 16 * 16 * 9, 4 * 1024


def test_kernels_transposes_and_bytes():
    program = GpuProgram(PROGRAM)
    # Once: transpose, that of the kernel, two copies, cuDNN. In each turn: the slice, the update.
    assert program.kernels() == 5 + 3 * 2
    assert program.transposes() == 2  # not that of a kernel, nor the copy in the same layout
    once = 2 * IMAGES + 2 * KERNEL + 2 * 2 * IMAGES + (2 * IMAGES + KERNEL)
    sliced, updated = STATE + STATE + 4, STATE + STATE + 4  # and the number of the state
    assert program.moved_bytes() == once + 3 * (sliced + updated)


def test_lines_are_read():
    one = read(
        "  ROOT %a.1 = (bf16[2,3]{1,0}, pred[4]{0}) fusion(%b, %c-2), kind=kLoop, calls=%f.3"
    )
    assert (one.name, one.op, one.operands, one.calls) == ("a.1", "fusion", ("b", "c-2"), "f.3")
    assert size_of(one.result) == 2 * 3 * 2 + 4
    assert read("}") is None


def test_descriptions_are_whole():
    for name, gpu in gpus.gpus().items():
        text = gpus.target_config(name)
        assert text.count("{") == text.count("}")
        assert f"core_count: {gpu['core_count']}\n" in text
        assert gpu["name"] in text
        # The published peak without tensor cores is what cores, lanes and clock multiply to.
        lanes = gpu["core_count"] * gpu["fpus_per_core"]
        assert gpu["peak"]["highest"] == pytest.approx(
            2e9 * lanes * gpu["clock_rate_ghz"], rel=0.02
        )


def test_roofline():
    settings = {"dtype": "float32", "precision": "default"}
    assert gpus.roofline_seconds("a100", 2039e9, 1, **settings) == 1
    assert gpus.roofline_seconds("a100", 1, 78e12, **settings) == 1
    settings["precision"] = "highest"
    assert gpus.roofline_seconds("a100", 1, 78e12, **settings) == 8
    settings["dtype"] = "bfloat16"
    assert gpus.roofline_seconds("a100", 1, 156e12, **settings) == 1


def test_hosts():
    assert [gpus.hosts_and_gpus(n) for n in (1, 8, 32)] == [(1, 1), (1, 8), (4, 8)]
    with pytest.raises(ValueError, match="12 GPUs are more than the 8 of a host, and no multiple"):
        gpus.hosts_and_gpus(12)


@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is not None, reason="the CUDA compiler is here"
)
def test_without_the_compiler_it_is_named():
    with pytest.raises(
        ValueError, match=r"GPU plans need the compiler for CUDA: pip install jax\["
    ):
        topologies.open_topology("a100:8")


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None,
    reason="jax[cuda12], the compiler for GPUs, is not installed; launch/check_cuda.sh brings it",
)
def test_plan_for_two_gpus():
    command = [sys.executable, "-m", "istanas_jax", "plan", "--config", "digits:tiny"]
    command += [*TINY_SPACE_FLAGS, "--config.search.cells=1"]
    command += ["--config.train.cells=1", "--topology", "rtx4090:2", "--json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["chips"], figures["hosts"], figures["fits"]) == (2, 1, True)
    for phase in figures["phases"]:
        assert phase["kernels"] > 10
        assert phase["moved_bytes"] > 0
        assert phase["step_seconds"] == phase["roofline_seconds"] > 0
