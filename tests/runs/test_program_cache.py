"""Where compiled programs are kept."""

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
