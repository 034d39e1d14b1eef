"""Looking at a run needs neither jax nor the networks: only the files of its folder."""

import subprocess
import sys

import numpy as np
from places import ROOT
from report_runs import make_run, read

from istanas_jax.look.report import run_page
from istanas_jax.storage.checkpoints import Checkpoints

LOOK = """
import sys
from istanas_jax.cli.main import main
run = sys.argv[1]
for command in (["inspect", run], ["report", run], ["report", run, run], ["judge", run]):
    assert main(command) == 0, command
heavy = {"jax", "flax", "optax", "orbax"} & set(sys.modules)
assert not heavy, heavy
assert not [name for name in sys.modules if name.startswith("istanas_jax.networks")]
"""


def test_inspect_report_and_judge(tmp_path):
    run = make_run(tmp_path / "run")
    state = {"step": np.int32(3), "params": {"kernel": np.ones(4, np.float32)}}
    with Checkpoints(run / "checkpoints" / "retrain_0", keep=1, every_minutes=60) as checkpoints:
        checkpoints.save(3, state, about={"phase": "retrain 0", "epoch": 1}, wait=True)
    command = [sys.executable, "-c", LOOK, str(run)]
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (run / "report.html").exists() and (tmp_path / "comparison.html").exists()


def test_help_is_there_at_once(tmp_path):
    """Importing jax takes a second or more."""
    code = (
        "import sys\nfrom istanas_jax.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "assert not {'jax', 'numpy', 'flax'} & set(sys.modules), sorted(sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_sizes_that_were_not_written_are_unknown(tmp_path):
    """Runs of earlier versions have no sizes.json."""
    run = make_run(tmp_path / "run")
    assert "unknown" not in read(run_page.write(run)).text
    (run / "sizes.json").unlink()
    assert "unknown" in read(run_page.write(run)).text
