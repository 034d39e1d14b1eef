import json
import math
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from istanas_jax.runs import metrics
from istanas_jax.runs.folder import METRICS
from istanas_jax.runs.metrics import MetricsLog, read


def row(phase, step, **more):
    return {"phase": phase, "step": step, "loss": 1 / step, **more}


def test_numbers_of_any_kind_become_plain(tmp_path):
    with MetricsLog(tmp_path / "new") as log:
        log.write(
            row("search 0", np.int64(3), accuracy=jnp.float32(0.5), distance=jnp.ones(2))
            | {"pair": (1, np.bool_(True)), "nothing": None, "nested": {"b": np.float32(2)}}
        )
    assert read(tmp_path / "new" / METRICS) == [
        row("search 0", 3, accuracy=0.5, distance=[1.0, 1.0], pair=[1, True], nothing=None)
        | {"nested": {"b": 2.0}}
    ]


def test_what_json_has_no_number_for(tmp_path):
    with MetricsLog(tmp_path) as log:
        log.write(row("search 0", 1, accuracy=math.nan, distance=np.array([np.inf, -np.inf])))

    def refuse(constant):
        raise AssertionError(constant)

    (line,) = log.path.read_text().splitlines()
    content = json.loads(line, parse_constant=refuse)
    assert math.isnan(float(content["accuracy"]))
    assert [float(value) for value in content["distance"]] == [math.inf, -math.inf]


def test_a_row_is_on_disk_at_once(tmp_path):
    with MetricsLog(tmp_path) as log:
        log.write(row("search 0", 1))
        assert read(log.path) == [row("search 0", 1)]


@pytest.mark.parametrize(
    "rest", [b'{"phase": "sea', b'{"phase": "search 0"}', b"\0\0\0\n", b"\xff"]
)
def test_a_half_written_last_line_is_dropped(tmp_path, rest):
    path = tmp_path / METRICS
    with MetricsLog(tmp_path) as log:
        log.write(row("search 0", 1))
    whole = path.read_bytes()
    path.write_bytes(whole + rest)
    assert read(path) == [row("search 0", 1)]
    with MetricsLog(tmp_path) as log:
        assert path.read_bytes() == whole
        log.write(row("search 0", 2))
    assert read(path) == [row("search 0", 1), row("search 0", 2)]


def test_a_broken_line_before_the_last_is_an_error(tmp_path):
    path = tmp_path / METRICS
    path.write_text('{"phase": "search 0", "step": 1}\noops\n{"phase": "search 0", "step": 2}\n')
    with pytest.raises(ValueError, match="line 2: not JSON"):
        read(path)
    with pytest.raises(ValueError, match="line 2: not JSON"):
        MetricsLog(tmp_path)
    assert "oops" in path.read_text()


def test_a_resumed_run_leaves_the_file_of_a_straight_one(tmp_path):
    straight = [row("search 0", step) for step in (10, 20, 30)]
    straight += [row("retrain 0", step, accuracy=jnp.float32(0.1)) for step in (10, 20, 30)]
    with MetricsLog(tmp_path / "straight") as log:
        for each in straight:
            log.write(each)
    with MetricsLog(tmp_path / "resumed") as log:
        for each in straight[:5]:
            log.write(each | {"loss": 7.0} if each is straight[4] else each)
    with MetricsLog(tmp_path / "resumed") as resumed:
        resumed.rewind("retrain 0", 10)
        resumed.rewind("retrain 0", 10)  # nothing left to forget
        for each in straight[4:]:
            resumed.write(each)
    assert resumed.path.read_bytes() == log.path.read_bytes()
    assert [path.name for path in resumed.path.parent.glob("*metrics*")] == [METRICS]


def test_rewind_touches_its_phase_only(tmp_path):
    with MetricsLog(tmp_path) as log:
        for phase in ("search 0", "search 1"):
            for step in (1, 2):
                log.write(row(phase, step))
        log.rewind("search 0", 0)
        log.write(row("search 0", 1))
    assert read(log.path) == [row("search 1", 1), row("search 1", 2), row("search 0", 1)]


def test_tensorboard_shows_the_rows_without_those_rewound(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with MetricsLog(tmp_path) as log:
        for step in (1, 2, 3):
            log.write(row("search 0", step, distance=[step, 2 * step], note="text"))
        log.write(row("retrain 0", 1, accuracy=math.nan))
    with MetricsLog(tmp_path) as log:
        log.rewind("search 0", 1)
        log.rewind("search 1", 0)  # never begun: no folder for it
        log.write(row("search 0", 2, distance=[0, 0]))
    folder = tmp_path / "tensorboard"
    assert {path.name for path in folder.iterdir()} == {"search 0", "retrain 0"}
    events = EventAccumulator(str(folder / "search 0")).Reload()
    assert set(events.Tags()["scalars"]) == {"loss", "distance/0", "distance/1"}
    assert [(event.step, event.value) for event in events.Scalars("distance/1")] == [(1, 2), (2, 0)]


def test_neither_prints_nor_imports_tensorflow(tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise AssertionError('imported')")
    program = (
        "import sys; from istanas_jax.runs.metrics import MetricsLog\n"
        "with MetricsLog('.') as log: log.write({'phase': 'search 0', 'step': 1, 'loss': 1.0})\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    package = str(Path(metrics.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True,
        env={"PYTHONPATH": package}, check=True,
    )  # fmt: skip
    assert done.stdout + done.stderr == ""


def test_works_without_tensorboard(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto", None)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with MetricsLog(tmp_path) as log:
        log.write(row("search 0", 1))
        log.rewind("search 0", 0)
    assert [path.name for path in tmp_path.iterdir()] == [METRICS]
