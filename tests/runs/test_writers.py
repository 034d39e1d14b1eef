"""Rows also go to the service that the config chooses; without one, no service is imported."""

import struct
import subprocess
import sys

import pytest
from tiny_runs import rows, tiny

from istanas_jax.runs.folder import Workdir
from istanas_jax.runs.metrics import MetricsLog
from istanas_jax.runs.writers import check_writer, open_writer

ROWS = [
    {"phase": "search 0", "step": 5, "loss": 2.0, "distance": [0.5, 0.25], "note": "text"},
    {"phase": "search 0", "step": 10, "loss": 1.0, "distance": [0.5, 0.125]},
    {"phase": "retrain 0", "step": 5, "loss": 3.0},
]


def chosen(name):
    config = tiny()
    with config.unlocked():
        config.log.writer = name
    return config


def write(config, folder, some):
    """Write rows as a run does, in a session of its own."""
    said = []
    with (
        MetricsLog(folder) as log,
        open_writer(config, Workdir(folder), said.append) as log.writer,
    ):
        for row in some:
            log.write(row)
    return said


def records(content: bytes):
    """The records in a file of W&B: blocks of 32 KiB as LevelDB logs have them, after 7 bytes."""
    place, parts = 7, []
    while place + 7 <= len(content):
        if 32768 - place % 32768 < 7:  # no room for another record in this block
            place += 32768 - place % 32768
            continue
        _, length, fragment = struct.unpack("<IHB", content[place : place + 7])
        parts.append(content[place + 7 : place + 7 + length])
        place += 7 + length
        if fragment in (1, 4):  # whole, or the last part
            yield b"".join(parts)
            parts = []


def test_wandb_offline(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="the extra `wandb` is not installed")
    from wandb.proto import wandb_internal_pb2

    for name, value in (("MODE", "offline"), ("SILENT", "true"), ("CACHE_DIR", str(tmp_path))):
        monkeypatch.setenv(f"WANDB_{name}", value)
    config, run = chosen("wandb"), tmp_path / "run"
    assert write(config, run, ROWS[:2]) == []
    assert write(config, run, ROWS[2:]) == []  # the same run goes on
    wandb.teardown()  # ends the process that writes its files
    identity = Workdir(run).read("wandb.json")["id"]
    files = sorted((run / "wandb").glob(f"offline-run-*/run-{identity}.wandb"))
    found = []
    for file in files:
        for data in records(file.read_bytes()):
            items = wandb_internal_pb2.Record.FromString(data).history.item
            if items:
                names = ("/".join(item.nested_key) or item.key for item in items)
                values = (float(item.value_json) for item in items)
                found.append(dict(zip(names, values, strict=True)))
    shown = [{k: v for k, v in row.items() if not k.startswith("_")} for row in found]
    assert shown == [
        {
            "search 0/loss": 2.0,
            "search 0/distance/0": 0.5,
            "search 0/distance/1": 0.25,
            "search 0/step": 5.0,
        },
        {
            "search 0/loss": 1.0,
            "search 0/distance/0": 0.5,
            "search 0/distance/1": 0.125,
            "search 0/step": 10.0,
        },
        {"retrain 0/loss": 3.0, "retrain 0/step": 5.0},
    ]


def test_mlflow_in_a_folder(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow", reason="the extra `mlflow` is not installed")
    address = (tmp_path / "mlruns").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    config, run = chosen("mlflow"), tmp_path / "run"
    assert write(config, run, ROWS[:2]) == []
    assert write(config, run, ROWS[2:]) == []
    client = mlflow.MlflowClient(address)
    (experiment,) = (e for e in client.search_experiments() if e.name == "istanas")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["search.epochs"] == "3"
    history = client.get_metric_history(found.info.run_id, "search 0/loss")
    assert [(point.step, point.value) for point in history] == [(5, 2.0), (10, 1.0)]
    assert found.data.metrics["search 0/distance/1"] == 0.125
    assert found.data.metrics["retrain 0/loss"] == 3.0


def test_a_service_that_fails_stops_no_run(tmp_path, monkeypatch):
    failing = tmp_path / "failing.py"
    failing.write_text(
        "class Writer:\n"
        "    def __init__(self, workdir, config): pass\n"
        "    def write(self, phase, step, numbers): raise RuntimeError('the line is down')\n"
        "    def close(self): raise RuntimeError('still')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        "istanas_jax.runs.writers.import_module", lambda name: __import__("failing")
    )
    said = write(chosen("wandb"), tmp_path / "run", ROWS)
    words = "log.writer wandb gets no more rows (the line is down); metrics.jsonl has all"
    assert said == [words]
    assert rows(tmp_path / "run") == ROWS


def test_a_service_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("istanas_jax.runs.writers.util.find_spec", lambda name: None)
    check_writer(chosen(""))
    with pytest.raises(ValueError, match=r"log\.writer is mlflow, which is not installed: pip ins"):
        check_writer(chosen("mlflow"))


def test_no_service_is_imported_unasked():
    code = """
import sys
import istanas_jax.api
assert not {"wandb", "mlflow", "onnx", "onnxruntime", "torch"} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
