"""A run's files in a bucket: fsspec's memory stands in for it, or a server if gcsfs is there."""

import json
import os
import subprocess
import sys

import etils.epath.backend
import fsspec
import pytest
from etils import epath
from fsspec.implementations.memory import MemoryFileSystem
from gcs_server import Bucket
from places import ROOT
from report_runs import make_run

from istanas_jax.config.files import load_config
from istanas_jax.look.curves import write_curves
from istanas_jax.look.drawing import write_cells
from istanas_jax.look.report import compare, index, run_page
from istanas_jax.runs import metrics
from istanas_jax.runs.folder import Workdir, WorkdirError
from istanas_jax.runs.metrics import MetricsLog
from istanas_jax.space import genotype
from istanas_jax.storage.files import GrowingFile, write_whole

CONFIG = str(ROOT / "configs" / "digits.py:tiny")


class Memory(MemoryFileSystem):
    """gs:// in memory; like a bucket it cannot append, and has folders only by their files."""

    protocol = ("gcs", "gs")
    store = {}  # noqa: RUF012, as in the base class
    pseudo_dirs = [""]  # noqa: RUF012
    cachable = False

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(str(path).removeprefix("gs://"))

    def _open(self, path, mode="rb", **options):
        assert mode in ("rb", "wb")
        return super()._open(path, mode, **options)


@pytest.fixture
def bucket(monkeypatch):
    """gs://bucket, empty, and without gcsfs."""
    monkeypatch.setattr(Memory, "store", {})
    monkeypatch.setattr(Memory, "pseudo_dirs", [""])
    monkeypatch.setattr(
        etils.epath.backend.fsspec_backend, "_get_filesystem", lambda name: Memory()
    )
    return epath.Path("gs://bucket")


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_files(bucket):
    write_whole(bucket / "a.json", b"1")
    write_whole(bucket / "a.json", b"22")
    assert (bucket / "a.json").read_bytes() == b"22"
    for pieces in ([b"x\n", b"y\n"], [b"z\n"]):
        file = GrowingFile(bucket / "rows")
        for piece in pieces:
            file.add(piece)
        file.close()
    assert (bucket / "rows").read_bytes() == b"x\ny\nz\n"
    assert names(bucket) == {"a.json", "rows"}


def test_everything_but_checkpoints(bucket):
    config = load_config(CONFIG, [])
    path = bucket / "runs" / "one"
    workdir = Workdir.open(path, config)
    rows = [{"phase": "search 0", "step": step, "loss": 1 / step} for step in (1, 2, 3)]
    with workdir.work(config), MetricsLog(path) as log:
        for row in rows:
            log.write(row)
        log.rewind("search 0", 2)
        assert metrics.read(log.path) == rows[:2]
        workdir.write("some.json", {"some": "thing"})
    with MetricsLog(path) as log:
        log.write(rows[2])
    assert metrics.read(path / "metrics.jsonl") == rows
    assert Workdir.open(path, config).read("some.json") == {"some": "thing"}
    assert Workdir.open(path, config).read("result.json") is None
    write_curves(rows, workdir / "curves.svg")
    assert (workdir / "curves.svg").read_text().startswith("<?xml")
    write_cells(genotype.load("ISTA_twostage"), workdir / "cells")
    assert names(workdir / "cells") == {"normal.svg", "reduction.svg"}
    assert names(path) - {"tensorboard"} == {
        "config.json", "metrics.jsonl", "some.json", "curves.svg", "cells",
    }  # fmt: skip


def test_reports_in_a_bucket(bucket, tmp_path):
    local, path = make_run(tmp_path / "one"), bucket / "runs" / "one"
    for file in local.iterdir():
        write_whole(path / file.name, file.read_bytes())
    listed = index.write(bucket / "runs")
    assert os.fspath(listed) == "gs://bucket/runs/index.html"
    assert 'href="./one/report.html"' in listed.read_text()
    text = run_page.write(path).read_text()
    assert "export gs://bucket/runs/one --out" in text
    assert "--genotype &#x27;Genotype(normal=" in text  # a file in a bucket is not read by retrain
    compare.write([path, path], bucket / "compared.html")
    assert (bucket / "compared.html").exists()


def test_a_bucket_is_guarded_like_a_folder(bucket):
    config = load_config(CONFIG, [])
    write_whole(bucket / "other" / "thesis.tex", b"years of work")
    with pytest.raises(WorkdirError, match="holds other files and no run"):
        Workdir.open(bucket / "other", config)
    with pytest.raises(WorkdirError, match="is a file, not a folder"):
        Workdir.open(bucket / "other" / "thesis.tex", config)
    with Workdir.open(bucket / "run", config).work(config):
        pass
    with pytest.raises(WorkdirError, match=r"search\.epochs was"):
        Workdir.open(bucket / "run", load_config(CONFIG, ["--config.search.epochs=77"]))
    with (
        pytest.raises(ValueError, match="no images"),
        Workdir.open(bucket / "failed", config).work(config),
    ):
        raise ValueError("no images")
    assert not (bucket / "failed" / "config.json").exists()


def test_what_is_wrong_with_a_bucket_is_said(monkeypatch):
    config = load_config(CONFIG, [])

    def broken(error):
        def get(name):
            raise error

        monkeypatch.setattr(etils.epath.backend.fsspec_backend, "_get_filesystem", get)

    broken(ImportError("Please install gcsfs"))
    with pytest.raises(WorkdirError, match="gs://bucket/run needs the package gcsfs"):
        Workdir.open("gs://bucket/run", config)
    broken(RuntimeError("401"))
    with pytest.raises(WorkdirError, match="cannot read gs://bucket/run: 401"):
        Workdir.open("gs://bucket/run", config)


def test_a_bucket_that_is_not_there(bucket, monkeypatch):
    config = load_config(CONFIG, [])

    def refuse(*_):
        raise FileNotFoundError("404")

    monkeypatch.setattr("istanas_jax.runs.folder.write_whole", refuse)
    with (
        pytest.raises(WorkdirError, match="to gs://bucket/run, or there is no such bucket: 404"),
        Workdir.open(bucket / "run", config).work(config),
    ):
        pass


def test_a_process_that_only_reads(tmp_path):
    config = load_config(CONFIG, [])
    path = tmp_path / "run"
    reader = Workdir.open(path, config, writes=False)
    with reader.work(config), MetricsLog(path, writes=False) as log:
        reader.write("some.json", {})
        log.write({"phase": "search 0", "step": 1})
        log.rewind("search 0", 0)
    assert not path.exists()
    writer = Workdir.open(path, config)
    with (
        writer.work(config),
        reader.work(config),  # whoever only reads takes no lock
        MetricsLog(path) as log,
        MetricsLog(path, writes=False) as other,
    ):
        writer.write("some.json", {"a": 1})
        log.write({"phase": "search 0", "step": 1})
        other.write({"phase": "search 0", "step": 2})
        other.rewind("search 0", 0)
        assert Workdir.open(path, config, writes=False).read("some.json") == {"a": 1}
        assert metrics.read(other.path) == [{"phase": "search 0", "step": 1}]


def test_listings_are_not_kept():
    assert fsspec.config.conf["gcs"]["use_listings_cache"] is False


PROGRAM = """
import sys

import numpy as np

from istanas_jax.storage.checkpoints import Checkpoints
from istanas_jax.config.files import load_config
from istanas_jax.runs.metrics import MetricsLog
from istanas_jax.runs.folder import Workdir

config = load_config(sys.argv[1], [])
workdir = Workdir.open("gs://bucket/run", config)
state = {"weights": np.arange(1000.0), "step": np.int32(0)}
with (
    workdir.work(config),
    MetricsLog(workdir.path) as log,
    Checkpoints(workdir / "checkpoints", keep=1, every_minutes=1) as checkpoints,
):
    restored = checkpoints.restore(state)
    step = restored.step if restored else 0
    log.rewind("search 0", step)
    if restored:
        assert np.array_equal(restored.state["weights"], np.arange(1000.0) + step)
    for step in range(step + 1, step + 3):
        log.write({"phase": "search 0", "step": step})
        checkpoints.save(step, {"weights": np.arange(1000.0) + step, "step": np.int32(0)}, about={})
    log.write({"phase": "search 0", "step": step + 1})
"""


def test_run_stopped_and_continued_on_a_server():
    """With gcsfs and tensorstore as in a real bucket; requirements-tpu.txt brings gcsfs."""
    pytest.importorskip("gcsfs")
    with Bucket() as server:
        for _ in range(2):
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, CONFIG], cwd=ROOT, text=True, capture_output=True,
                env=os.environ | server.environment,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
        rows = server.objects["run/metrics.jsonl"].content.splitlines()
        assert [json.loads(row)["step"] for row in rows] == [1, 2, 3, 4, 5]
        assert "run/config.json" in server.objects
        steps = {name.split("/")[2] for name in server.objects if name.startswith("run/checkp")}
        assert steps - {""} == {"4"}
