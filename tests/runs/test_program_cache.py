"""Where compiled programs are kept, and which of them."""

import os

import jaxlib.version
import pytest

from istanas_jax.runs import program_cache
from istanas_jax.runs.program_cache import default_folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_a_folder_for_each_jaxlib_platform_and_processor(home, monkeypatch):
    monkeypatch.setattr(program_cache, "_processor", lambda: "AMD EPYC 7B13 (rev 2)")
    folder = default_folder("runs/digits")
    version = jaxlib.version.__version__
    assert folder == f"{home}/istanas_jax/{version}-cpu-AMD_EPYC_7B13_rev_2"
    monkeypatch.setattr(program_cache, "_processor", lambda: "another")
    assert default_folder("runs/digits") != folder
    monkeypatch.setattr(program_cache, "jaxlib_version", "9.9.9")
    assert "/9.9.9-cpu-another" in default_folder()


def test_programs_of_a_run_in_a_bucket_are_beside_it(home):
    name = default_folder().rpartition("/")[2]
    assert default_folder("gs://bucket/runs/a/") == f"gs://bucket/runs/istanas_programs/{name}"


def test_the_processor_has_a_name():
    assert program_cache._processor()


def test_programs_used_longest_ago_go_first(tmp_path):
    for number, (folder, name) in enumerate([("new", "c"), ("old", "a"), ("new", "b")]):
        file = tmp_path / folder / f"{name}-cache"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes(100))
        os.utime(file, (number, number))
    (tmp_path / "new" / "other file").write_bytes(bytes(1000))

    def left():
        return sorted(path.name for path in tmp_path.glob("*/*-cache"))

    program_cache.shrink(tmp_path, 300)
    assert left() == ["a-cache", "b-cache", "c-cache"]
    cache, _ = program_cache.files(str(tmp_path / "new"))
    cache.put("d", program_cache.compilation_cache.compress_executable(b"program"))
    os.utime(tmp_path / "new" / "d-cache", (0, 0))
    assert cache.get("d")  # makes it the newest
    program_cache.shrink(tmp_path, 250)
    assert left() == ["a-cache", "b-cache", "d-cache"]
    assert (tmp_path / "new" / "other file").exists()
