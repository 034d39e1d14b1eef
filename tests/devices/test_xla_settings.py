"""XLA sums correctly wherever this package is used, and the user's settings stay."""

import json
import os
import subprocess
import sys

import pytest
from places import ROOT

from istanas_jax.devices import xla_settings

# jax issue 39103, as it was reported; a wrong jaxlib is off by more than half.
SUMS = """
import jax, jax.numpy as jnp, numpy as np
draw = np.random.default_rng(0).standard_normal
M, rows = draw((3, 3)).astype(np.float32), draw((40_000, 3)).astype(np.float32)
sums = jax.jit(jax.vmap(lambda row: jnp.sum((M @ row) ** 2)))(rows)
expected = ((rows.astype(float) @ M.T.astype(float)) ** 2).sum(1)
off_by = np.abs(sums - expected).max() / expected.max()
"""
ROUNDING = 1e-6  # float32 of three products and three squares
NAME = "--xla_cpu_experimental_ynn_fusion_type"


def python(*arguments, flags=None) -> subprocess.CompletedProcess:
    """A process of a user, who has set these XLA_FLAGS or none, and nothing of glibc's."""
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "GLIBC_TUNABLES")}
    environment |= {"PYTHONPATH": str(ROOT), "JAX_ENABLE_COMPILATION_CACHE": "0"}
    if flags is not None:
        environment["XLA_FLAGS"] = flags
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def program(*lines: str) -> list[str]:
    told = "import os, json; print(json.dumps([float(off_by), os.environ.get('XLA_FLAGS')]))"
    return ["-c", "\n".join([*lines, SUMS, told])]


def test_sums_are_right_in_the_tests():
    found = {}
    exec(SUMS, found)
    assert found["off_by"] < ROUNDING


@pytest.mark.parametrize("flags", [None, "--xla_cpu_prefer_vector_width=256"])
def test_sums_are_right_after_the_import(flags):
    done = python(*program("import istanas_jax"), flags=flags)
    off_by, now = json.loads(done.stdout)
    assert off_by < ROUNDING
    assert done.stderr == ""
    assert flags is None or now.startswith(f"{flags} ")


def test_sums_are_right_in_commands(tmp_path):
    """A config file is a program that the command runs."""
    (tmp_path / "sums.py").write_text(
        f"{SUMS}\nimport os\ndef get_config():\n    pages = os.environ['GLIBC_TUNABLES']\n"
        "    raise ValueError(f'the sums are off by {off_by} of all with {pages}')"
    )
    asked = ["--config", tmp_path / "sums.py", "--workdir", tmp_path / "run"]
    done = python("-m", "istanas_jax", "run", *asked)
    assert done.returncode == 2
    off_by = done.stderr.partition("off by ")[2].split()[0]
    assert float(off_by) < ROUNDING
    assert "with glibc.malloc.hugetlb=1" in done.stderr  # the command has started itself again


def test_too_late_is_told():
    """Flags that XLA did not read are not added: the run's folder would tell something untrue."""
    if xla_settings.version.__version__ not in xla_settings.WRONG_SUMS:
        pytest.skip("this jaxlib needs no flag")
    done = python(*program("import jax; jax.devices()", "import istanas_jax"))
    _, now = json.loads(done.stdout)
    assert now is None
    told = [line for line in done.stderr.splitlines() if "UserWarning" in line]
    assert len(told) == 1 and "import istanas_jax first" in told[0]


@pytest.mark.parametrize("present", ["", "--a=1", f"{NAME}=DOT", f"--a=1 {NAME}= --b=2"])
def test_what_the_user_has_set_stays(monkeypatch, present):
    monkeypatch.setenv("XLA_FLAGS", present)
    added = xla_settings.add(*xla_settings.NO_FUSED_SUMS)
    assert added == (NAME not in present)
    assert os.environ["XLA_FLAGS"] == (f"{present} {NAME}=".strip() if added else present)


def test_other_jaxlibs_are_left_alone(monkeypatch):
    """XLA ends a process whose XLA_FLAGS it does not know."""
    monkeypatch.setenv("XLA_FLAGS", "--a=1")
    monkeypatch.setattr(xla_settings.version, "__version__", "0.10.1")
    xla_settings.correct_sums()
    assert os.environ["XLA_FLAGS"] == "--a=1"
